"""The Python client of a running server; the commands use it.

Each function takes `server`: ``HOST:PORT``, or the state directory of a local server. The default is the
server in ``KFPYTORCH_SERVER``, or the one that runs with this user's state directory.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from google.protobuf.message import Message
from msgspec import structs

from backend_plugin.core.errors import BackendError
from backend_plugin.shell import discovery, small_files
from kfpytorch_idl.v1 import people_pb2 as wire

if TYPE_CHECKING:
    import grpc

SERVER: Final = "KFPYTORCH_SERVER"
"""The variable with the server address: ``HOST:PORT``, or ``grpcs://HOST:PORT`` for one with TLS."""
TOKEN: Final = "KFPYTORCH_TOKEN"  # noqa: S105 - a variable's name.
"""The variable with the access token of the server."""

SERVING: Final = "SERVING"
"""The health status of a server that is ready."""

_SERVICE: Final = wire.DESCRIPTOR.services_by_name["People"].full_name
_TLS: Final = "grpcs://"
# The timeout of a unary call, which needs only the server's memory or one API request.
_PATIENCE: Final = 30.0
# The timeout of a health check.
_PROBE: Final = 5.0
_START: Final = "start one: kfpytorch serve --cluster embedded"
# The details of gRPC errors: an unimplemented method, and an unreachable server.
_NO_METHOD: Final = "Method not found!"
_NO_CONNECTION: Final = "failed to connect to all addresses"
# Status codes with details that are a complete message for the user.
_EXPLAINED: Final = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
Answer = TypeVar("Answer", bound=Message)


class NotAnswered(BackendError):
    """The error that a request has no result; the message contains the reason and the remedy."""


class NoServer(NotAnswered):
    """The error that no server runs or is reachable."""


class TokenRefused(NotAnswered):
    """The error that the server does not accept the token, or that the token is malformed."""


class NotFound(NotAnswered):
    """The error that no job has the name; the message contains similar names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The selection of log lines of a job."""

    follow: bool = False
    """Wait for more lines until the job has ended."""
    tail: int | None = None
    """The number of last lines of each replica to return; None for all."""
    rank: int | None = None
    replica: str | None = None
    """The name of a replica, such as ``worker-1``."""
    previous: bool = False
    """Return the lines of the container run before the last restart."""


def list_jobs(
    *, namespace: str | None = None, living: bool = False, server: str | None = None
) -> list[wire.Job]:
    """Return all jobs, the newest first, without their replicas and events.

    Args:
        namespace: Return only the jobs of this namespace.
        living: Omit jobs that have ended.
        server: The server to call.
    """
    request = wire.ListJobsRequest(namespace=namespace, living=living)
    parts = _stream("ListJobs", request, wire.ListJobsResponse, server)
    return [job for part in parts for job in part.jobs]


def get_job(name: str, *, namespace: str | None = None, server: str | None = None) -> wire.Job:
    """Return one job with all details.

    Args:
        name: The name of the job, a prefix of it, or the name of a Flyte execution.
        namespace: The namespace of the job; the name may also contain it, as ``NAMESPACE/NAME``.
        server: The server to call.

    Raises:
        NotFound: If the job does not exist.
    """
    return _ask("GetJob", wire.GetJobRequest(name=name, namespace=namespace), wire.Job, server)


def watch_jobs(
    name: str | None = None,
    *,
    namespace: str | None = None,
    living: bool = False,
    server: str | None = None,
) -> Generator[wire.JobChange, None, None]:
    """Yield each current job, the oldest first, then each changed job; stop when the job `name` has ended.

    Close the generator to stop early. This applies to all streams here, because gRPC cannot end a call during
    the shutdown of the interpreter.
    """
    request = wire.WatchJobsRequest(name=name, namespace=namespace, living=living)
    return _stream("WatchJobs", request, wire.JobChange, server)


def read_logs(
    name: str, wanted: Lines | None = None, *, namespace: str | None = None, server: str | None = None
) -> Iterator[wire.LogLine]:
    """Yield the log lines of a job's replicas in the order of their times."""
    with closing(read_log_parts(name, wanted or Lines(), namespace=namespace, server=server)) as parts:
        for part in parts:
            yield from part.lines


def read_log_parts(
    name: str, wanted: Lines, *, namespace: str | None = None, server: str | None = None
) -> Generator[wire.LogLines, None, None]:
    """Yield the log lines in the batches that the server sends."""
    request = wire.ReadLogsRequest(
        name=name,
        namespace=namespace,
        follow=wanted.follow,
        tail=wanted.tail,
        rank=wanted.rank,
        replica=wanted.replica,
        previous=wanted.previous,
    )
    return _stream("ReadLogs", request, wire.LogLines, server)


def cancel_job(
    name: str, *, reason: str = "", namespace: str | None = None, server: str | None = None
) -> wire.CancelJobResponse:
    """End a job: Flyte receives a permanent failure with the reason and starts no other attempt."""
    request = wire.CancelJobRequest(name=name, namespace=namespace, reason=reason)
    return _ask("CancelJob", request, wire.CancelJobResponse, server)


def health(service: str = "", *, name: str = "", server: str | None = None) -> str:
    """Return the status of a server from gRPC's health service.

    Args:
        service: ``liveness`` for the status of the process; empty for its readiness.
        name: The name in the server's certificate, if it differs from the address.
        server: The server to call.

    Raises:
        NotAnswered: If the server does not respond.
    """
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    with connected(server, name) as (channel, metadata):
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=_serialized,
            response_deserializer=HealthCheckResponse.FromString,
        )
        answer = call(HealthCheckRequest(service=service), metadata=metadata, timeout=_PROBE)
        return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def list_nodes(*, server: str | None = None) -> list[wire.Node]:
    """Return the nodes of an embedded cluster."""
    return list(_ask("ListNodes", wire.ListNodesRequest(), wire.ListNodesResponse, server).nodes)


def lose_node(name: str, *, server: str | None = None) -> wire.Node:
    """Kill all processes of a node, as in a power failure."""
    return _set(name, wire.NODE_STATE_LOST, server)


def drain_node(name: str, *, server: str | None = None) -> wire.Node:
    """Move the pods off a node and schedule no others there."""
    return _set(name, wire.NODE_STATE_DRAINED, server)


def restore_node(name: str, *, server: str | None = None) -> wire.Node:
    """Make a node schedulable again."""
    return _set(name, wire.NODE_STATE_READY, server)


def _set(name: str, state: "wire.NodeState", server: str | None) -> wire.Node:
    return _ask("SetNode", wire.SetNodeRequest(name=name, state=state), wire.Node, server)


# ---- calls


def _ask(method: str, request: Message, answer: type[Answer], server: str | None) -> Answer:
    with connected(server) as (channel, metadata):
        call = channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=_serialized,
            response_deserializer=answer.FromString,
        )
        said: Answer = call(request, metadata=metadata, timeout=_PATIENCE)
        return said


def _stream(
    method: str, request: Message, answer: type[Answer], server: str | None
) -> Generator[Answer, None, None]:
    with connected(server) as (channel, metadata):
        call: Any = channel.unary_stream(
            f"/{_SERVICE}/{method}",
            request_serializer=_serialized,
            response_deserializer=answer.FromString,
        )(request, metadata=metadata)
        try:
            yield from call
        finally:
            call.cancel()


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


@contextmanager
def connected(
    server: str | None, name: str = "", roots: str = ""
) -> Iterator[tuple["grpc.Channel", Metadata]]:
    """Yield a channel to the server and the metadata of each call.

    Args:
        server: The server to call.
        name: The name in the server's certificate, if it differs from the address.
        roots: A file with the server's certificate or its CA, if `server.json` names none.

    Raises:
        NotAnswered: If the connection or a call within the context fails.
    """
    import grpc

    found = _found(server)
    token = found.token or (_of_file(found) if found.token_file else "")
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    # Proxy variables of the environment do not apply to a server that the user names.
    options: list[tuple[str, int | str]] = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", -1),
    ]
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    if found.endpoint.startswith(_TLS):
        file = found.roots or roots
        trusted = _content(file, f"the certificate of {found.endpoint}") if file else None
        channel = grpc.secure_channel(
            found.endpoint.removeprefix(_TLS), grpc.ssl_channel_credentials(trusted), options=options
        )
    else:
        channel = grpc.insecure_channel(found.endpoint, options=options)
    with channel:
        try:
            yield channel, metadata
        except grpc.RpcError as error:
            raise _said(error, found.endpoint) from error


def _found(server: str | None) -> discovery.Server:
    """Return the server to call.

    Raises:
        NoServer: If no server is named and none runs.
    """
    named = server or os.environ.get(SERVER)
    is_state = named is not None and Path(named).is_dir()
    state = Path(named) if named is not None and is_state else discovery.state_directory(os.environ)
    told = discovery.read(state)
    if named is not None and not is_state:
        if told is None or told.endpoint != named:
            return discovery.Server(endpoint=named, token=_said_token())
        # The local server by its address: its token and certificate still apply.
        return structs.replace(told, token=_said_token() or told.token)
    where = discovery.file(state)
    if told is None:
        raise NoServer(
            f"no server runs here ({where} tells of none); {_START}\n"
            f"  or name one: --server HOST:PORT, or {SERVER} in the environment"
        )
    if not discovery.is_alive(told):
        raise NoServer(f"the server of {where} is gone: there is no process {told.pid}; {_START}")
    return told


def _of_file(found: discovery.Server) -> str:
    """Return the current token from the server's token file."""
    said = _content(found.token_file, f"the token of {found.endpoint}").decode(errors="replace")
    return _word(said, found.token_file)


def _content(file: str, what: str) -> bytes:
    try:
        return small_files.read(Path(file), small_files.LONGEST_SECRET)
    except OSError as error:
        raise NotAnswered(f"{what} cannot be read: {file}: {error.strerror}") from error


def _said_token() -> str:
    """Return the token of the environment without a trailing newline."""
    return _word(os.environ.get(TOKEN, ""), TOKEN)


def _word(said: str, where: str) -> str:
    token = said.strip()
    if not (token.isascii() and token.isprintable()):
        raise TokenRefused(f"{where} holds no token: one is a word of plain characters")
    return token


def _said(error: "grpc.RpcError", endpoint: str) -> NotAnswered:
    """Return the exception that explains a gRPC error."""
    call: Any = error
    code, details = call.code().name, call.details() or ""
    if code == "UNAUTHENTICATED":
        where = discovery.file(discovery.state_directory(os.environ))
        return TokenRefused(
            f"the server at {endpoint} refuses the token; who has started it finds it in {where}, "
            f"others give it in {TOKEN}"
        )
    if code == "UNAVAILABLE" and _NO_CONNECTION in details:
        return NoServer(f"no server answers at {endpoint}; {_START}")
    if code == "UNIMPLEMENTED" and details == _NO_METHOD:
        return NotAnswered(f"the server at {endpoint} does not know this question; is it of another release?")
    if code == "NOT_FOUND":
        return NotFound(details)
    if code in _EXPLAINED:
        return NotAnswered(details)
    return NotAnswered(f"the server at {endpoint} cannot answer: {code}: {details}")

"""What people can ask of a running server, as Python functions; the commands are made of them.

Lives here: finding the server, asking it, and saying why it does not answer. Does not: how answers are shown.
Each function takes `server`, as ``HOST:PORT`` or as the state directory of one that runs here. Without it,
it is the one that ``KFPYTORCH_SERVER`` names, or that runs with this user's state directory.
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
"""The variable that names a server, as ``HOST:PORT``, or ``grpcs://HOST:PORT`` for one with TLS."""
TOKEN: Final = "KFPYTORCH_TOKEN"  # noqa: S105 - a variable's name.
"""The variable with the token for it."""

SERVING: Final = "SERVING"
"""What a server says of its health that is well."""

_SERVICE: Final = wire.DESCRIPTOR.services_by_name["People"].full_name
_TLS: Final = "grpcs://"
# Any answer that is one message comes out of the server's memory, or from one call of the cluster's.
_PATIENCE: Final = 30.0
# A probe that waits longer is none.
_PROBE: Final = 5.0
_START: Final = "start one: kfpytorch serve --cluster embedded"
# What gRPC says of a server that does not know a method, and of one that is not there.
_NO_METHOD: Final = "Method not found!"
_NO_CONNECTION: Final = "failed to connect to all addresses"
# Codes with which a server says in a sentence of its own what is the matter.
_EXPLAINED: Final = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
Answer = TypeVar("Answer", bound=Message)


class NotAnswered(BackendError):
    """What was asked has no answer; says why, and what can be done."""


class NoServer(NotAnswered):
    """There is no server to ask."""


class TokenRefused(NotAnswered):
    """The server answers others only."""


class NotFound(NotAnswered):
    """There is nothing of that name; says what is nearly called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Which lines of a job are wanted."""

    follow: bool = False
    """Go on until the job has ended."""
    tail: int | None = None
    """Of each replica, begin so many lines before the end."""
    rank: int | None = None
    replica: str | None = None
    """As in ``worker-1``."""
    previous: bool = False
    """Of the run before the last restart."""


def list_jobs(
    *, namespace: str | None = None, living: bool = False, server: str | None = None
) -> list[wire.Job]:
    """The jobs that there are, the newest first, without their replicas and events.

    Args:
        namespace: Of this one only.
        living: Leave out those that have ended.
        server: Whom to ask.
    """
    request = wire.ListJobsRequest(namespace=namespace, living=living)
    parts = _stream("ListJobs", request, wire.ListJobsResponse, server)
    return [job for part in parts for job in part.jobs]


def get_job(name: str, *, namespace: str | None = None, server: str | None = None) -> wire.Job:
    """One job in full.

    Args:
        name: Its name, the beginning of it, or an execution of Flyte.
        namespace: Where it is; may also precede the name, with a slash.
        server: Whom to ask.

    Raises:
        NotFound: If there is none.
    """
    return _ask("GetJob", wire.GetJobRequest(name=name, namespace=namespace), wire.Job, server)


def watch_jobs(
    name: str | None = None,
    *,
    namespace: str | None = None,
    living: bool = False,
    server: str | None = None,
) -> Generator[wire.JobChange, None, None]:
    """The jobs as they are, the oldest first, then each that has changed; of one, until it has ended.

    Who stops before its end closes it, as every stream here: gRPC cannot when the interpreter is ending.
    """
    request = wire.WatchJobsRequest(name=name, namespace=namespace, living=living)
    return _stream("WatchJobs", request, wire.JobChange, server)


def read_logs(
    name: str, wanted: Lines | None = None, *, namespace: str | None = None, server: str | None = None
) -> Iterator[wire.LogLine]:
    """What the replicas of a job have written, in the order of their times."""
    with closing(read_log_parts(name, wanted or Lines(), namespace=namespace, server=server)) as parts:
        for part in parts:
            yield from part.lines


def read_log_parts(
    name: str, wanted: Lines, *, namespace: str | None = None, server: str | None = None
) -> Generator[wire.LogLines, None, None]:
    """The same, as many lines at once as there are."""
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
    """End a job for good: Flyte is told that it failed, with the reason, and begins no other attempt."""
    request = wire.CancelJobRequest(name=name, namespace=namespace, reason=reason)
    return _ask("CancelJob", request, wire.CancelJobResponse, server)


def health(service: str = "", *, name: str = "", server: str | None = None) -> str:
    """What a server says of itself, in the words of gRPC's health service.

    Args:
        service: ``liveness``: whether it answers at all; empty: whether it is ready.
        name: By which its certificate knows it, if not by its address.
        server: Whom to ask.

    Raises:
        NotAnswered: If it says nothing.
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
    """The nodes of an embedded cluster."""
    return list(_ask("ListNodes", wire.ListNodesRequest(), wire.ListNodesResponse, server).nodes)


def lose_node(name: str, *, server: str | None = None) -> wire.Node:
    """Kill what runs on a node, as when its power goes."""
    return _set(name, wire.NODE_STATE_LOST, server)


def drain_node(name: str, *, server: str | None = None) -> wire.Node:
    """Move the pods off a node, and let no other on it."""
    return _set(name, wire.NODE_STATE_DRAINED, server)


def restore_node(name: str, *, server: str | None = None) -> wire.Node:
    """Let a node take pods again."""
    return _set(name, wire.NODE_STATE_READY, server)


def _set(name: str, state: "wire.NodeState", server: str | None) -> wire.Node:
    return _ask("SetNode", wire.SetNodeRequest(name=name, state=state), wire.Node, server)


# ---- asking


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
    """A channel to the server, and what every call carries.

    Args:
        server: Whom to ask.
        name: By which its certificate knows it, if not by its address.
        roots: A file with the certificate that it has, or with its authority, if neither is known here.

    Raises:
        NotAnswered: For whatever goes wrong within.
    """
    import grpc

    found = _found(server)
    token = found.token or (_of_file(found) if found.token_file else "")
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    # A proxy of the environment is not for servers that a person names.
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
    """The server that is meant.

    Raises:
        NoServer: If none is named, and none runs.
    """
    named = server or os.environ.get(SERVER)
    is_state = named is not None and Path(named).is_dir()
    state = Path(named) if named is not None and is_state else discovery.state_directory(os.environ)
    told = discovery.read(state)
    if named is not None and not is_state:
        if told is None or told.endpoint != named:
            return discovery.Server(endpoint=named, token=_said_token())
        # The one that runs here, named by hand: its token and its certificate stay with it.
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
    """The token that is in the server's own file at this moment."""
    said = _content(found.token_file, f"the token of {found.endpoint}").decode(errors="replace")
    return _word(said, found.token_file)


def _content(file: str, what: str) -> bytes:
    try:
        return small_files.read(Path(file), small_files.LONGEST_SECRET)
    except OSError as error:
        raise NotAnswered(f"{what} cannot be read: {file}: {error.strerror}") from error


def _said_token() -> str:
    """The token of the environment; the end of a line that came along with it is none of it."""
    return _word(os.environ.get(TOKEN, ""), TOKEN)


def _word(said: str, where: str) -> str:
    token = said.strip()
    if not (token.isascii() and token.isprintable()):
        raise TokenRefused(f"{where} holds no token: one is a word of plain characters")
    return token


def _said(error: "grpc.RpcError", endpoint: str) -> NotAnswered:
    """Why there is no answer, in a sentence."""
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

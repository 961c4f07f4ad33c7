"""The Python client of a running server; the commands use it.

Each function takes `server`: ``HOST:PORT``, the state directory of a local server, or a `Server` with the
credentials of the caller. The default is the server in ``KFPYTORCH_SERVER``, or the one that runs with this
user's state directory.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from backend_plugin.connection import (
    SERVER,
    TOKEN,
    Address,
    DeadlineExceeded,
    MethodNotFound,
    NotFound,
    RequestFailed,
    Server,
    ServerNotFound,
    TokenRejected,
    open_channel,
)
from kfpytorch_idl.v1 import job_service_pb2 as wire

__all__ = (
    "SERVER",
    "TOKEN",
    "Address",
    "LogOptions",
    "NotEnded",
    "NotFound",
    "RequestFailed",
    "Server",
    "ServerNotFound",
    "TokenRejected",
    "cancel_job",
    "check_health",
    "drain_node",
    "fail_node",
    "get_job",
    "list_jobs",
    "list_nodes",
    "open_channel",
    "read_log_parts",
    "read_logs",
    "restore_node",
    "wait_for_job",
    "watch_jobs",
)

SERVING: Final = "SERVING"
"""The health status of a server that is ready."""

_JOBS: Final = wire.DESCRIPTOR.services_by_name["JobService"].full_name
_NODES: Final = wire.DESCRIPTOR.services_by_name["NodeService"].full_name
# The timeout of a unary call, which needs only the server's memory or one API request.
_PATIENCE: Final = 30.0
# The timeout of a health check.
_PROBE: Final = 5.0
# The longest timeout in seconds. With a longer one, gRPC's deadline overflows, and the call ends immediately.
_LONGEST: Final = 1e9

Answer = TypeVar("Answer", bound=Message)


class NotEnded(RequestFailed):
    """The error that a job has not ended within the timeout; the message contains its phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The selection of log lines of a job."""

    follow: bool = False
    """Wait for more lines until the job has ended."""
    tail: int | None = None
    """The number of last lines of each replica to return; None for all."""
    rank: int | None = None
    replica: str | None = None
    """The name of a replica, such as ``worker-1``."""
    node: int | None = None
    """The position of a replica in the order of the ranks, from 0."""
    previous: bool = False
    """Return the lines of the container run before the last restart."""


def list_jobs(
    *, namespace: str | None = None, active_only: bool = False, details: bool = False, server: Address = None
) -> list[wire.Job]:
    """Return all jobs, the newest first.

    Args:
        namespace: Return only the jobs of this namespace.
        active_only: Omit jobs that have ended.
        details: Return each job with its replicas and events.
        server: The server to call.
    """
    request = wire.ListJobsRequest(namespace=namespace, active_only=active_only, details=details)
    parts = _call_streaming("ListJobs", request, wire.ListJobsResponse, server)
    return [job for part in parts for job in part.jobs]


def get_job(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Job:
    """Return one job with all details.

    Args:
        name: The name of the job, a prefix of it, or the name of a Flyte execution.
        namespace: The namespace of the job; the name may also contain it, as ``NAMESPACE/NAME``.
        server: The server to call.

    Raises:
        NotFound: If the job does not exist.
    """
    return _call_unary(_JOBS, "GetJob", wire.GetJobRequest(name=name, namespace=namespace), wire.Job, server)


def watch_jobs(
    name: str | None = None,
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    server: Address = None,
) -> Generator[wire.JobChange, None, None]:
    """Yield each current job, the oldest first, then each changed job; stop when the job `name` has ended.

    Close the generator to stop early. This applies to all streams here, because gRPC cannot end a call during
    the shutdown of the interpreter.
    """
    request = wire.WatchJobsRequest(name=name, namespace=namespace, active_only=active_only, details=details)
    return _call_streaming("WatchJobs", request, wire.JobChange, server)


def wait_for_job(
    name: str, *, timeout: timedelta | None = None, namespace: str | None = None, server: Address = None
) -> wire.Job:
    """Return a job with all details as soon as it has ended; its verdict contains the phase.

    Args:
        name: The job, as for `get_job`.
        timeout: The longest time to wait; None for no limit.
        namespace: The namespace of the job.
        server: The server to call.

    Raises:
        NotEnded: If the job has not ended within the timeout.
        NotFound: If the job does not exist, or is deleted before it ends.
    """
    request = wire.WatchJobsRequest(name=name, namespace=namespace, details=True)
    last: wire.Job | None = None
    try:
        for change in _call_streaming("WatchJobs", request, wire.JobChange, server, timeout=timeout):
            if change.HasField("gone"):
                raise NotFound(f"the job {change.gone.name} was deleted before it ended")
            last = change.job
    except DeadlineExceeded as error:
        assert timeout is not None  # noqa: S101 - for mypy: only a timeout ends this call.
        phase = f"; its phase is {last.verdict.phase}" if last else ""
        job = last.name if last else name
        raise NotEnded(f"{job} has not ended within {timeout.total_seconds():g} s{phase}") from error
    if last is None:
        raise RequestFailed(f"the server ended the watch of the job {name} without its state")
    return last


def read_logs(
    name: str, wanted: LogOptions | None = None, *, namespace: str | None = None, server: Address = None
) -> Iterator[wire.LogLine]:
    """Yield the log lines of a job's replicas in the order of their times."""
    with closing(read_log_parts(name, wanted or LogOptions(), namespace=namespace, server=server)) as parts:
        for part in parts:
            yield from part.lines


def read_log_parts(
    name: str, wanted: LogOptions, *, namespace: str | None = None, server: Address = None
) -> Generator[wire.LogLines, None, None]:
    """Yield the log lines in the batches that the server sends."""
    request = wire.ReadLogsRequest(
        name=name,
        namespace=namespace,
        follow=wanted.follow,
        tail=wanted.tail,
        rank=wanted.rank,
        replica=wanted.replica,
        node=wanted.node,
        previous=wanted.previous,
    )
    return _call_streaming("ReadLogs", request, wire.LogLines, server)


def cancel_job(
    name: str, *, reason: str = "", namespace: str | None = None, server: Address = None
) -> wire.CancelJobResponse:
    """End a job: Flyte receives a permanent failure with the reason and starts no other attempt."""
    request = wire.CancelJobRequest(name=name, namespace=namespace, reason=reason)
    return _call_unary(_JOBS, "CancelJob", request, wire.CancelJobResponse, server)


def check_health(service: str = "", *, server: Address = None) -> str:
    """Return the status of a server from gRPC's health service.

    Args:
        service: ``liveness`` for the status of the process; empty for its readiness.
        server: The server to call.

    Raises:
        RequestFailed: If the server does not respond.
    """
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    with open_channel(server) as (channel, metadata):
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=_serialize,
            response_deserializer=HealthCheckResponse.FromString,
        )
        answer = call(HealthCheckRequest(service=service), metadata=metadata, timeout=_PROBE)
        return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def list_nodes(*, server: Address = None) -> list[wire.Node]:
    """Return the nodes of an embedded cluster."""
    return list(_call_nodes("ListNodes", wire.ListNodesRequest(), wire.ListNodesResponse, server).nodes)


def fail_node(name: str, *, server: Address = None) -> wire.Node:
    """Kill all processes of a node, as in a power failure."""
    return _set_node_state(name, wire.NODE_STATE_NOT_READY, server)


def drain_node(name: str, *, server: Address = None) -> wire.Node:
    """Move the pods off a node and schedule no others there."""
    return _set_node_state(name, wire.NODE_STATE_DRAINED, server)


def restore_node(name: str, *, server: Address = None) -> wire.Node:
    """Make a node schedulable again."""
    return _set_node_state(name, wire.NODE_STATE_READY, server)


def _set_node_state(name: str, state: "wire.NodeState", server: Address) -> wire.Node:
    return _call_nodes("SetNodeState", wire.SetNodeStateRequest(name=name, state=state), wire.Node, server)


# ---- calls


def _call_nodes(method: str, request: Message, answer: type[Answer], server: Address) -> Answer:
    try:
        return _call_unary(_NODES, method, request, answer, server)
    except MethodNotFound as error:
        raise RequestFailed("only an embedded cluster can list, fail, drain or restore nodes") from error


def _call_unary(service: str, method: str, request: Message, answer: type[Answer], server: Address) -> Answer:
    with open_channel(server) as (channel, metadata):
        call = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=_serialize,
            response_deserializer=answer.FromString,
        )
        said: Answer = call(request, metadata=metadata, timeout=_PATIENCE)
        return said


def _call_streaming(
    method: str,
    request: Message,
    answer: type[Answer],
    server: Address,
    *,
    timeout: timedelta | None = None,
) -> Generator[Answer, None, None]:
    with open_channel(server) as (channel, metadata):
        call: Any = channel.unary_stream(
            f"/{_JOBS}/{method}",
            request_serializer=_serialize,
            response_deserializer=answer.FromString,
        )(request, metadata=metadata, timeout=min(timeout.total_seconds(), _LONGEST) if timeout else None)
        try:
            yield from call
        finally:
            call.cancel()


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()

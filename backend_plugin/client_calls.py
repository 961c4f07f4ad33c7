"""The gRPC calls of the Python clients `client` and `async_client`, independent of a channel."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from backend_plugin.core import runtimes
from backend_plugin.request_errors import NotFound, RequestFailed
from kfpytorch_idl.v1 import job_service_pb2 as wire

_METHODS: Final = {
    method.input_type.full_name: f"/{service.full_name}/{method.name}"
    for service in wire.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""The path of each method by the type of its request; no two methods share a type."""
_UNARY_SECONDS: Final = 30.0
"""The timeout of a unary call, which needs only the server's memory or a few API requests."""
_PACKAGES: Final = timedelta(minutes=10)
_CLEANUP_SECONDS: Final = 60.0
"""The time, in addition to its timeout, to start and to delete the job that lists packages."""
_MAX_SECONDS: Final = 1e9
"""The longest timeout. With a longer one, gRPC's deadline overflows, and the call ends immediately."""

Answer = TypeVar("Answer", bound=Message)


class NotEnded(RequestFailed):
    """The error that a job has not ended within the timeout; the message contains its last known phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The selection of log lines of a job."""

    follow: bool = False
    """Wait for more lines until the job has ended."""
    tail: int | None = None
    """The number of last lines of each replica to return; None for all."""
    rank: int | None = None
    """A global rank: return only lines of the replicas that may have it."""
    replica: str | None = None
    """The name of a replica, such as ``worker-1``."""
    node: int | None = None
    """The position of a replica in the order of the ranks, from 0."""
    previous: bool = False
    """Return the lines of the container run before the last restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Answer]):
    """A gRPC call: the request, the type of the response and the timeout."""

    request: Message
    answer: type[Answer]
    seconds: float | None = _UNARY_SECONDS
    """The timeout; None for no limit."""

    @property
    def path(self) -> str:
        """The path of the method."""
        return _METHODS[self.request.DESCRIPTOR.full_name]

    @property
    def serializers(self) -> dict[str, Any]:
        """The functions that convert messages, as gRPC's channels require them."""
        return {
            "request_serializer": self.request.__class__.SerializeToString,
            "response_deserializer": self.answer.FromString,
        }


def list_jobs(
    *, namespace: str | None, active_only: bool, details: bool, foreign: bool
) -> Call[wire.ListJobsResponse]:
    """Return the streaming call for a list of jobs."""
    return Call(
        request=wire.ListJobsRequest(
            namespace=namespace, active_only=active_only, details=details, include_foreign=foreign
        ),
        answer=wire.ListJobsResponse,
        seconds=None,
    )


def get_job(name: str, namespace: str | None) -> Call[wire.Job]:
    """Return the call for one job."""
    return Call(
        request=wire.GetJobRequest(name=name, namespace=namespace),
        answer=wire.Job,
    )


def watch_jobs(
    name: str | None,
    *,
    namespace: str | None,
    active_only: bool = False,
    details: bool = False,
    timeout: timedelta | None = None,
) -> Call[wire.JobChange]:
    """Return the streaming call for the changes of jobs."""
    return Call(
        request=wire.WatchJobsRequest(
            name=name, namespace=namespace, active_only=active_only, details=details
        ),
        answer=wire.JobChange,
        seconds=None if timeout is None else min(timeout.total_seconds(), _MAX_SECONDS),
    )


def read_logs(name: str, options: LogOptions, namespace: str | None) -> Call[wire.LogLines]:
    """Return the streaming call for log lines."""
    return Call(
        request=wire.ReadLogsRequest(
            name=name,
            namespace=namespace,
            follow=options.follow,
            tail=options.tail,
            rank=options.rank,
            replica=options.replica,
            node=options.node,
            previous=options.previous,
        ),
        answer=wire.LogLines,
        seconds=None,
    )


def cancel_job(name: str, reason: str, namespace: str | None) -> Call[wire.CancelJobResponse]:
    """Return the call that cancels a job."""
    return Call(
        request=wire.CancelJobRequest(name=name, namespace=namespace, reason=reason),
        answer=wire.CancelJobResponse,
    )


def list_runtimes(namespace: str | None, *, job_runtimes: bool) -> Call[wire.ListRuntimesResponse]:
    """Return the call for a list of training runtimes."""
    return Call(
        request=wire.ListRuntimesRequest(namespace=namespace, include_job_runtimes=job_runtimes),
        answer=wire.ListRuntimesResponse,
    )


def get_runtime_packages(
    name: str, namespace: str | None, timeout: timedelta | None
) -> Call[wire.RuntimePackages]:
    """Return the call for the packages of a training runtime."""
    limit = Duration()
    limit.FromTimedelta(timeout or _PACKAGES)
    return Call(
        request=wire.GetRuntimePackagesRequest(name=name, namespace=namespace, timeout=limit),
        answer=wire.RuntimePackages,
        seconds=(timeout or _PACKAGES).total_seconds() + _CLEANUP_SECONDS,
    )


def list_nodes() -> Call[wire.ListNodesResponse]:
    """Return the call for a list of nodes."""
    return Call(request=wire.ListNodesRequest(), answer=wire.ListNodesResponse)


def set_node_state(name: str, state: "wire.NodeState") -> Call[wire.Node]:
    """Return the call that sets the state of a node."""
    return Call(
        request=wire.SetNodeStateRequest(name=name, state=state),
        answer=wire.Node,
    )


def find_runtime(name: str, namespace: str | None, found: wire.ListRuntimesResponse) -> wire.Runtime:
    """Return the training runtime with this name from a list.

    Raises:
        NotFound: If no runtime has the name.
        RequestFailed: If `namespace` is None, and several namespaces have a runtime with the name.
    """
    try:
        return runtimes.find_runtime(name, namespace, found.runtimes)
    except runtimes.RuntimeNotFound as error:
        raise NotFound(str(error)) from error
    except runtimes.AmbiguousRuntime as error:
        raise RequestFailed(str(error)) from error


class JobWait:
    """Collects the changes of one job from a watch until the job has ended."""

    def __init__(self, name: str, timeout: timedelta | None) -> None:
        self._name = name
        self._timeout = timeout
        self._last: wire.Job | None = None

    def add(self, change: wire.JobChange) -> None:
        """Add a change of the job.

        Raises:
            NotFound: If the job was deleted.
        """
        if change.HasField("gone"):
            raise NotFound(f"the job {change.gone.name} was deleted before it ended")
        self._last = change.job

    def get_result(self) -> wire.Job:
        """Return the job as it was in the last change; call it after the watch has ended.

        Raises:
            RequestFailed: If there was no change.
        """
        if self._last is None:
            raise RequestFailed(f"the server ended the watch of the job {self._name} without its state")
        return self._last

    def build_timeout_error(self) -> NotEnded:
        """Return the error that the job has not ended in time."""
        assert self._timeout is not None  # noqa: S101 - for mypy: only a timeout ends the call.
        phase = f"; its phase is {self._last.verdict.phase}" if self._last else ""
        job = self._last.name if self._last else self._name
        return NotEnded(f"{job} has not ended within {self._timeout.total_seconds():g} s{phase}")

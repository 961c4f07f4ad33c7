"""The code that `client` and `async_client` share: gRPC methods, log options, and the wait for a job."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from backend_plugin.core import runtimes
from backend_plugin.request_errors import NotFound, RequestFailed
from kfpytorch_idl.v1 import job_service_pb2 as wire

_PATHS: Final = {
    "grpc.health.v1.HealthCheckRequest": "/grpc.health.v1.Health/Check",
    **{
        method.input_type.full_name: f"/{service.full_name}/{method.name}"
        for service in wire.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    },
}
"""The path of each gRPC method, by the type of its request; no two methods share a request type."""
UNARY_SECONDS: Final = 30.0
"""The timeout of a unary call in seconds. The server needs only its memory or a few API requests for it."""
_PACKAGES: Final = timedelta(minutes=10)
_CLEANUP: Final = timedelta(minutes=1)
"""The time to start and to delete the job that lists packages, in addition to the timeout of the job."""

Answer = TypeVar("Answer", bound=Message)


class NotEnded(RequestFailed):
    """Raised if a job has not ended within the timeout; the message contains the job's last known phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options that select log lines of a job; the fields are named as in the message `ReadLogsRequest`."""

    follow: bool = False
    """Wait for more lines until the job has ended."""
    tail: int | None = None
    """The number of lines to return from the end of each replica's log; None for all lines."""
    rank: int | None = None
    """A global rank; only lines of the replicas in which this rank may run are returned."""
    replica: str | None = None
    """The name of a replica, such as ``worker-1``."""
    node: int | None = None
    """The node number of a replica: its position in the order of the ranks, from 0."""
    previous: bool = False
    """Return the lines of the container run before the last restart."""


def build_method(request: Message, answer: type[Message]) -> dict[str, Any]:
    """Return the arguments for a channel's `unary_unary` or `unary_stream`: a method's path and serializers.

    The method is the one whose request has the type of `request`. `answer` is the type of its response.
    """
    return {
        "method": _PATHS[request.DESCRIPTOR.full_name],
        "request_serializer": type(request).SerializeToString,
        "response_deserializer": answer.FromString,
    }


def build_packages_request(
    name: str, namespace: str | None, timeout: timedelta | None
) -> tuple[wire.GetRuntimePackagesRequest, float]:
    """Return the request for the packages of a training runtime, and the timeout of the call in seconds."""
    limit = timeout or _PACKAGES
    duration = Duration()
    duration.FromTimedelta(limit)
    request = wire.GetRuntimePackagesRequest(name=name, namespace=namespace, timeout=duration)
    return request, (limit + _CLEANUP).total_seconds()


def find_runtime(name: str, namespace: str | None, found: wire.ListRuntimesResponse) -> wire.Runtime:
    """Return the training runtime with the name `name` from the list `found`.

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
    """The request to watch one job, and the last received state of the job."""

    def __init__(self, name: str, namespace: str | None, timeout: timedelta | None) -> None:
        self.request = wire.WatchJobsRequest(name=name, namespace=namespace, details=True)
        self.seconds = None if timeout is None else timeout.total_seconds()
        self.job = wire.Job(name=name)

    def add(self, change: wire.JobChange) -> None:
        """Store the state of the job that `change` contains; raise `NotFound` if it was deleted."""
        if change.HasField("gone"):
            raise NotFound(f"the job {change.gone.name} was deleted before it ended")
        self.job = change.job

    def build_timeout_error(self) -> NotEnded:
        """Return the error which reports that the job has not ended within the timeout."""
        phase = f"; its phase is {self.job.verdict.phase}" if self.job.HasField("verdict") else ""
        return NotEnded(f"{self.job.name} has not ended within {self.seconds:g} s{phase}")

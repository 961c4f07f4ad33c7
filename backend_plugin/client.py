"""The Python client of a running server; the `kfpytorch` commands use it.

The module `async_client` has the functions for jobs and runtimes as coroutines and asynchronous generators.

The functions share these arguments:

- `server`: ``HOST:PORT``, ``grpcs://HOST:PORT`` for TLS, the state directory of a local server, or a `Server`
  with the credentials of the caller. The default is the server in ``KFPYTORCH_SERVER``, or the one that runs
  with this user's state directory.
- `name`: for a job, its name, a prefix of its name, or the name of a Flyte execution; otherwise the name of a
  runtime or node.
- `namespace`: only jobs and runtimes of this namespace are used. The `name` of a job may also contain the
  namespace, as ``NAMESPACE/NAME``.

The functions raise `RequestFailed` if the request fails, and `NotFound` if no job, runtime or node has the
name.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from google.protobuf.message import Message

from backend_plugin import client_calls as calls
from backend_plugin.client_calls import Answer, LogOptions, NotEnded
from backend_plugin.connection import open_channel, send, stream
from backend_plugin.request_errors import (
    DeadlineExceeded,
    MethodNotFound,
    NotFound,
    RequestFailed,
    ServerNotFound,
    TokenRejected,
)
from backend_plugin.server_address import SERVER, TOKEN, Address, Server
from kfpytorch_idl.v1 import job_service_pb2 as wire

__all__ = (
    "SERVER", "TOKEN", "Address", "LogOptions", "NotEnded", "NotFound", "RequestFailed", "Server",
    "ServerNotFound", "TokenRejected", "cancel_job", "check_health", "drain_node", "fail_node", "get_job",
    "get_job_logs", "get_runtime", "get_runtime_packages", "list_jobs", "list_nodes", "list_runtimes",
    "open_channel", "read_log_parts", "restore_node", "wait_for_job", "watch_jobs",
)  # fmt: skip

SERVING: Final = "SERVING"
"""The health status of a server that is ready."""

_PROBE_SECONDS: Final = 5.0
"""The timeout of a health check in seconds."""


def list_jobs(
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    foreign: bool = False,
    server: Address = None,
) -> list[wire.Job]:
    """Return the jobs of the server, the newest first.

    `active_only` omits jobs that have ended, `details` adds the replicas and events of each job, and
    `foreign` includes the jobs that other clients created, such as the Kubeflow SDK.
    """
    request = wire.ListJobsRequest(
        namespace=namespace, active_only=active_only, details=details, include_foreign=foreign
    )
    return [job for part in stream(request, wire.ListJobsResponse, server) for job in part.jobs]


def get_job(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Job:
    """Return one job with its replicas and events; the request fails if the name matches several jobs."""
    return send(wire.GetJobRequest(name=name, namespace=namespace), wire.Job, server)


def watch_jobs(
    name: str | None = None,
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    server: Address = None,
) -> Generator[wire.JobChange, None, None]:
    """Yield each current job, the oldest first, then each change; with `name`, stop when that job has ended.

    The arguments are as for `list_jobs`.

    To stop early, close the generator. This applies to all generators of this module, because gRPC cannot end
    a call during the shutdown of the interpreter.
    """
    request = wire.WatchJobsRequest(name=name, namespace=namespace, active_only=active_only, details=details)
    return stream(request, wire.JobChange, server)


def wait_for_job(
    name: str, *, timeout: timedelta | None = None, namespace: str | None = None, server: Address = None
) -> wire.Job:
    """Return a job with its replicas and events as soon as it has ended; `verdict.phase` is its Flyte phase.

    Raises:
        NotEnded: If the job has not ended within `timeout`. If `timeout` is None, there is no limit.
        NotFound: If the job does not exist, or is deleted before it ends.
    """
    wait = calls.JobWait(name, namespace, timeout)
    try:
        for change in stream(wait.request, wire.JobChange, server, wait.seconds):
            wait.add(change)
    except DeadlineExceeded as error:
        raise wait.build_timeout_error() from error
    return wait.job


def get_job_logs(
    name: str, options: LogOptions | None = None, *, namespace: str | None = None, server: Address = None
) -> Iterator[wire.LogLine]:
    """Yield the log lines of a job's replicas in the order of their times; all lines by default.

    The request fails if the job does not have the selected rank, replica or node.
    """
    with closing(read_log_parts(name, options or LogOptions(), namespace=namespace, server=server)) as parts:
        for part in parts:
            yield from part.lines


def read_log_parts(
    name: str, options: LogOptions, *, namespace: str | None = None, server: Address = None
) -> Generator[wire.LogLines, None, None]:
    """Yield the log lines of a job's replicas, in the batches that the server sends."""
    request = wire.ReadLogsRequest(name=name, namespace=namespace, **asdict(options))
    return stream(request, wire.LogLines, server)


def cancel_job(
    name: str, *, reason: str = "", namespace: str | None = None, server: Address = None
) -> wire.CancelJobResponse:
    """End a job: Flyte receives a permanent failure with the reason and starts no other attempt.

    If the job has ended already, nothing changes, and `already_finished` of the result is true. The request
    fails if another client created the job.
    """
    request = wire.CancelJobRequest(name=name, namespace=namespace, reason=reason)
    return send(request, wire.CancelJobResponse, server)


def list_runtimes(
    *, namespace: str | None = None, job_runtimes: bool = False, server: Address = None
) -> list[wire.Runtime]:
    """Return the runtimes of Kubeflow Trainer: TrainingRuntimes, then ClusterTrainingRuntimes.

    `job_runtimes` includes the runtimes that the server creates for single jobs.
    """
    request = wire.ListRuntimesRequest(namespace=namespace, include_job_runtimes=job_runtimes)
    return list(send(request, wire.ListRuntimesResponse, server).runtimes)


def get_runtime(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Runtime:
    """Return a training runtime by its name.

    A TrainingRuntime takes precedence over a ClusterTrainingRuntime of the same name. The request fails if
    `namespace` is None, and several namespaces have a TrainingRuntime of the name.
    """
    request = wire.ListRuntimesRequest(namespace=namespace, include_job_runtimes=True)
    return calls.find_runtime(name, namespace, send(request, wire.ListRuntimesResponse, server))


def get_runtime_packages(
    name: str, *, namespace: str | None = None, timeout: timedelta | None = None, server: Address = None
) -> wire.RuntimePackages:
    """Return the Python version, the packages and the GPUs that a training runtime provides.

    To list the packages, the server runs a job with this runtime on one node, and then deletes the job.
    `timeout` is the longest time for the job, 10 minutes by default. A ClusterTrainingRuntime requires
    `namespace`.
    """
    request, seconds = calls.build_packages_request(name, namespace, timeout)
    return send(request, wire.RuntimePackages, server, seconds)


def check_health(service: str = "", *, server: Address = None) -> str:
    """Return the status of a server from gRPC's health service: `SERVING` if it is ready.

    `service` is ``liveness`` for the status of the server's process; empty for the readiness of the server.
    """
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    try:
        answer = send(HealthCheckRequest(service=service), HealthCheckResponse, server, _PROBE_SECONDS)
    except NotFound as error:
        raise NotFound(
            f"the server has no health service {service}; write liveness, or nothing for readiness"
        ) from error
    return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def list_nodes(*, server: Address = None) -> list[wire.Node]:
    """Return the nodes of an embedded cluster."""
    return list(_send_to_nodes(wire.ListNodesRequest(), wire.ListNodesResponse, server).nodes)


def fail_node(name: str, *, server: Address = None) -> wire.Node:
    """Kill all processes of a node, as in a power failure."""
    return _set_node_state(name, wire.NODE_STATE_NOT_READY, server)


def drain_node(name: str, *, server: Address = None) -> wire.Node:
    """Mark a node as unschedulable, and evict its pods."""
    return _set_node_state(name, wire.NODE_STATE_DRAINED, server)


def restore_node(name: str, *, server: Address = None) -> wire.Node:
    """Make a failed or drained node schedulable again."""
    return _set_node_state(name, wire.NODE_STATE_READY, server)


def _set_node_state(name: str, state: "wire.NodeState", server: Address) -> wire.Node:
    return _send_to_nodes(wire.SetNodeStateRequest(name=name, state=state), wire.Node, server)


def _send_to_nodes(request: Message, answer: type[Answer], server: Address) -> Answer:
    try:
        return send(request, answer, server)
    except MethodNotFound as error:
        raise RequestFailed("only an embedded cluster can list, fail, drain or restore nodes") from error

"""The Python client of a running server; the commands use it.

`async_client` has its functions for jobs and runtimes as coroutines and asynchronous generators.

Each function takes `server`: ``HOST:PORT``, ``grpcs://HOST:PORT`` for TLS, the state directory of a local
server, or a `Server` with the credentials of the caller. The default is the server in ``KFPYTORCH_SERVER``,
or the one that runs with this user's state directory.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Final

from backend_plugin import client_calls as calls
from backend_plugin.channel_calls import send, stream
from backend_plugin.client_calls import JobWait, LogOptions, NotEnded
from backend_plugin.connection import open_channel
from backend_plugin.node_client import drain_node, fail_node, list_nodes, restore_node
from backend_plugin.request_errors import (
    DeadlineExceeded,
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
"""The timeout of a health check."""


def list_jobs(
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    foreign: bool = False,
    server: Address = None,
) -> list[wire.Job]:
    """Return the jobs of the server, the newest first.

    Args:
        namespace: Return only the jobs of this namespace.
        active_only: Omit jobs that have ended.
        details: Return each job with its replicas and events.
        foreign: Include the jobs that other clients created, such as the Kubeflow SDK.
        server: The server to call.
    """
    call = calls.list_jobs(namespace=namespace, active_only=active_only, details=details, foreign=foreign)
    return [job for part in stream(call, server) for job in part.jobs]


def get_job(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Job:
    """Return one job with all details.

    Args:
        name: The name of the job, a prefix of it, or the name of a Flyte execution.
        namespace: The namespace of the job; the name may also contain it, as ``NAMESPACE/NAME``.
        server: The server to call.

    Raises:
        NotFound: If the job does not exist.
        RequestFailed: If the name matches several jobs.
    """
    return send(calls.get_job(name, namespace), server)


def watch_jobs(
    name: str | None = None,
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    server: Address = None,
) -> Generator[wire.JobChange, None, None]:
    """Yield each current job, the oldest first, then each change; stop when the job `name` has ended.

    `name` is as for `get_job`, and the other arguments are as for `list_jobs`.

    To stop early, close the generator. This applies to all generators of this module, because gRPC cannot end
    a call during the shutdown of the interpreter.
    """
    call = calls.watch_jobs(name, namespace=namespace, active_only=active_only, details=details)
    return stream(call, server)


def wait_for_job(
    name: str, *, timeout: timedelta | None = None, namespace: str | None = None, server: Address = None
) -> wire.Job:
    """Return a job with all details as soon as it has ended; `verdict.phase` is its Flyte phase.

    Args:
        name: The job, as for `get_job`.
        timeout: The longest time to wait; None for no limit.
        namespace: The namespace of the job.
        server: The server to call.

    Raises:
        NotEnded: If the job has not ended within the timeout.
        NotFound: If the job does not exist, or is deleted before it ends.
    """
    wait = JobWait(name, timeout)
    try:
        for change in stream(
            calls.watch_jobs(name, namespace=namespace, details=True, timeout=timeout), server
        ):
            wait.add(change)
    except DeadlineExceeded as error:
        raise wait.build_timeout_error() from error
    return wait.get_result()


def get_job_logs(
    name: str, options: LogOptions | None = None, *, namespace: str | None = None, server: Address = None
) -> Iterator[wire.LogLine]:
    """Yield the log lines of a job's replicas in the order of their times.

    Args:
        name: The job, as for `get_job`.
        options: The selection of lines; all lines by default.
        namespace: The namespace of the job.
        server: The server to call.

    Raises:
        NotFound: If the job does not exist.
        RequestFailed: If the job does not have the selected rank, replica or node.
    """
    with closing(read_log_parts(name, options or LogOptions(), namespace=namespace, server=server)) as parts:
        for part in parts:
            yield from part.lines


def read_log_parts(
    name: str, options: LogOptions, *, namespace: str | None = None, server: Address = None
) -> Generator[wire.LogLines, None, None]:
    """Yield the log lines in the batches that the server sends."""
    return stream(calls.read_logs(name, options, namespace), server)


def cancel_job(
    name: str, *, reason: str = "", namespace: str | None = None, server: Address = None
) -> wire.CancelJobResponse:
    """End a job: Flyte receives a permanent failure with the reason and starts no other attempt.

    If the job has ended already, nothing changes, and `already_finished` of the result is true.

    Args:
        name: The job, as for `get_job`.
        reason: The reason, which Flyte shows.
        namespace: The namespace of the job.
        server: The server to call.

    Raises:
        NotFound: If the job does not exist.
        RequestFailed: If another client created the job.
    """
    return send(calls.cancel_job(name, reason, namespace), server)


def list_runtimes(
    *, namespace: str | None = None, job_runtimes: bool = False, server: Address = None
) -> list[wire.Runtime]:
    """Return the runtimes of Kubeflow Trainer: TrainingRuntimes, then ClusterTrainingRuntimes.

    Args:
        namespace: Return only the TrainingRuntimes of this namespace and the ClusterTrainingRuntimes.
        job_runtimes: Include the runtimes that the server creates for single jobs.
        server: The server to call.
    """
    return list(send(calls.list_runtimes(namespace, job_runtimes=job_runtimes), server).runtimes)


def get_runtime(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Runtime:
    """Return a training runtime by its name.

    A TrainingRuntime takes precedence over a ClusterTrainingRuntime of the same name.

    Args:
        name: The name of the runtime.
        namespace: The namespace of a TrainingRuntime.
        server: The server to call.

    Raises:
        NotFound: If the runtime does not exist; the message lists the existing ones.
        RequestFailed: If `namespace` is None, and several namespaces have a TrainingRuntime of the name.
    """
    found = send(calls.list_runtimes(namespace, job_runtimes=True), server)
    return calls.find_runtime(name, namespace, found)


def get_runtime_packages(
    name: str, *, namespace: str | None = None, timeout: timedelta | None = None, server: Address = None
) -> wire.RuntimePackages:
    """Return the Python version, the packages and the GPUs that a training runtime provides.

    To list them, the server runs a job with one node of the runtime, and then deletes the job.

    Args:
        name: The name of the runtime.
        namespace: The namespace in which the job runs; required for a ClusterTrainingRuntime.
        timeout: The longest time for the job; None for 10 minutes.
        server: The server to call.

    Raises:
        NotFound: If the runtime does not exist; the message lists the existing ones.
        RequestFailed: If several namespaces have a TrainingRuntime of the name, if its packages cannot be
            listed, or if the job is rejected, fails, or does not end within the timeout.
    """
    return send(calls.get_runtime_packages(name, namespace, timeout), server)


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
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        answer = call(HealthCheckRequest(service=service), metadata=metadata, timeout=_PROBE_SECONDS)
        return str(HealthCheckResponse.ServingStatus.Name(answer.status))

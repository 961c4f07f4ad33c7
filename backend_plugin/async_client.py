"""The functions of the module `client` for jobs and runtimes, as coroutines and asynchronous generators."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message

from backend_plugin import client_calls as calls
from backend_plugin.client_calls import Answer, LogOptions, NotEnded
from backend_plugin.connection import open_async_channel
from backend_plugin.request_errors import (
    DeadlineExceeded,
    NotFound,
    RequestFailed,
    ServerNotFound,
    TokenRejected,
)
from backend_plugin.server_address import Address, Server
from kfpytorch_idl.v1 import job_service_pb2 as wire

__all__ = (
    "Address", "LogOptions", "NotEnded", "NotFound", "RequestFailed", "Server", "ServerNotFound",
    "TokenRejected", "cancel_job", "get_job", "get_job_logs", "get_runtime", "get_runtime_packages",
    "list_jobs", "list_runtimes", "wait_for_job", "watch_jobs",
)  # fmt: skip


async def list_jobs(
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    foreign: bool = False,
    server: Address = None,
) -> list[wire.Job]:
    """Return the jobs of the server, the newest first; see `client.list_jobs`.

    `details` adds replicas and events, and `foreign` includes the jobs that other clients created.
    """
    request = wire.ListJobsRequest(
        namespace=namespace, active_only=active_only, details=details, include_foreign=foreign
    )
    async with aclosing(_stream(request, wire.ListJobsResponse, server)) as parts:
        return [job async for part in parts for job in part.jobs]


async def get_job(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Job:
    """Return one job with its replicas and events; see `client.get_job`."""
    return await _send(wire.GetJobRequest(name=name, namespace=namespace), wire.Job, server)


async def watch_jobs(
    name: str | None = None,
    *,
    namespace: str | None = None,
    active_only: bool = False,
    details: bool = False,
    server: Address = None,
) -> AsyncGenerator[wire.JobChange, None]:
    """Yield each current job, and then each change of a job; see `client.watch_jobs`."""
    request = wire.WatchJobsRequest(name=name, namespace=namespace, active_only=active_only, details=details)
    async with aclosing(_stream(request, wire.JobChange, server)) as changes:
        async for change in changes:
            yield change


async def wait_for_job(
    name: str, *, timeout: timedelta | None = None, namespace: str | None = None, server: Address = None
) -> wire.Job:
    """Return a job with its replicas and events as soon as it has ended; see `client.wait_for_job`."""
    wait = calls.JobWait(name, namespace, timeout)
    try:
        async with aclosing(_stream(wait.request, wire.JobChange, server, wait.seconds)) as changes:
            async for change in changes:
                wait.add(change)
    except DeadlineExceeded as error:
        raise wait.build_timeout_error() from error
    return wait.job


async def get_job_logs(
    name: str, options: LogOptions | None = None, *, namespace: str | None = None, server: Address = None
) -> AsyncGenerator[wire.LogLine, None]:
    """Yield the log lines of a job's replicas in the order of their times; see `client.get_job_logs`."""
    request = wire.ReadLogsRequest(name=name, namespace=namespace, **asdict(options or LogOptions()))
    async with aclosing(_stream(request, wire.LogLines, server)) as parts:
        async for part in parts:
            for line in part.lines:
                yield line


async def cancel_job(
    name: str, *, reason: str = "", namespace: str | None = None, server: Address = None
) -> wire.CancelJobResponse:
    """End a job permanently; see `client.cancel_job`."""
    request = wire.CancelJobRequest(name=name, namespace=namespace, reason=reason)
    return await _send(request, wire.CancelJobResponse, server)


async def list_runtimes(
    *, namespace: str | None = None, job_runtimes: bool = False, server: Address = None
) -> list[wire.Runtime]:
    """Return the training runtimes of Kubeflow Trainer; see `client.list_runtimes`."""
    request = wire.ListRuntimesRequest(namespace=namespace, include_job_runtimes=job_runtimes)
    return list((await _send(request, wire.ListRuntimesResponse, server)).runtimes)


async def get_runtime(name: str, *, namespace: str | None = None, server: Address = None) -> wire.Runtime:
    """Return one training runtime of Kubeflow Trainer; see `client.get_runtime`."""
    request = wire.ListRuntimesRequest(namespace=namespace, include_job_runtimes=True)
    return calls.find_runtime(name, namespace, await _send(request, wire.ListRuntimesResponse, server))


async def get_runtime_packages(
    name: str, *, namespace: str | None = None, timeout: timedelta | None = None, server: Address = None
) -> wire.RuntimePackages:
    """Return the packages that a training runtime provides; see `client.get_runtime_packages`."""
    request, seconds = calls.build_packages_request(name, namespace, timeout)
    return await _send(request, wire.RuntimePackages, server, seconds)


async def _send(
    request: Message, answer: type[Answer], server: Address, seconds: float = calls.UNARY_SECONDS
) -> Answer:
    async with open_async_channel(server) as (channel, metadata):
        method: Any = channel.unary_unary(**calls.build_method(request, answer))
        response: Answer = await method(request, metadata=metadata, timeout=seconds)
        return response


async def _stream(
    request: Message, answer: type[Answer], server: Address, seconds: float | None = None
) -> AsyncGenerator[Answer, None]:
    async with open_async_channel(server) as (channel, metadata):
        method: Any = channel.unary_stream(**calls.build_method(request, answer))
        responses = method(request, metadata=metadata, timeout=seconds)
        try:
            async for response in responses:
                yield response
        finally:
            responses.cancel()

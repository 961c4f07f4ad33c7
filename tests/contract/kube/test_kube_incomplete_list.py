"""Calls to a server that cannot list the jobs of its cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from kube_server import KubeServer, kubeconfig
from kube_world import JOBS, NAME, job
from serving import build_creation, wait_until

from backend_plugin.cli import clusters, serve_settings, server_assembly
from backend_plugin.core.job_lookup import JobNotFound
from backend_plugin.shell import connector_service, job_service
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.rpc_handlers import CallFailed
from kfpytorch_idl.v1 import job_service_pb2 as wire

RULE = "{apiGroups: [kubeflow.org], resources: [pytorchjobs], verbs: [list, watch]}"


async def list_names(jobs: job_service.JobService) -> list[str]:
    return [job.name async for part in jobs.list_jobs(wire.ListJobsRequest()) for job in part.jobs]


async def watch_first(jobs: job_service.JobService) -> str:
    return (await anext(jobs.watch_jobs(wire.WatchJobsRequest()))).job.name


async def read_logs(jobs: job_service.JobService) -> None:
    await anext(jobs.read_logs(wire.ReadLogsRequest(name=NAME)))


Call = Callable[[job_service.JobService], Awaitable[object]]
CALLS: dict[str, Call] = {
    "list": list_names,
    "watch": watch_first,
    "watch one": lambda jobs: anext(jobs.watch_jobs(wire.WatchJobsRequest(name=NAME))),
    "get": lambda jobs: jobs.get_job(wire.GetJobRequest(name=NAME)),
    "logs": read_logs,
    "cancel": lambda jobs: jobs.cancel_job(wire.CancelJobRequest(name=NAME)),
}


@asynccontextmanager
async def assembled(server: KubeServer, folder: Path) -> AsyncIterator[server_assembly.ServerParts]:
    """Run the parts of a server as `kfpytorch serve` assembles them, without its port."""
    flags = {
        "cluster": "kubernetes",
        "kubernetes.kubeconfig": kubeconfig(server, folder / "config"),
        "state-dir": str(folder),
        "output-prefixes": "s3://*",
    }
    configuration = serve_settings.read_configuration(None, flags)
    async with AsyncExitStack() as stack:
        here = await clusters.open_cluster(stack, configuration)
        parts = server_assembly.assemble_server(here, configuration.server.settings)
        running = asyncio.create_task(parts.run())
        try:
            yield parts
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for the first list, which never succeeds here."""
    monkeypatch.setattr(job_service, "_READY_SECONDS", 0.1)
    monkeypatch.setattr(connector_service, "_CREATE_SECONDS", 1.0)


async def test_unknown_job_is_reported_with_the_kind_that_cannot_be_listed(
    server: KubeServer, tmp_path: Path
) -> None:
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1"}
    server.forbidden |= {"list trainjobs", "list events"}
    async with assembled(server, tmp_path) as parts:
        await wait_until(parts.tasks.cache.ready.is_set)
        with pytest.raises(JobNotFound, match=r"resources: \[trainjobs\], verbs: \[list, watch\]") as failed:
            await parts.jobs.get_job(wire.GetJobRequest(name=NAME))
    assert "events" not in str(failed.value)


async def test_calls_fail_with_the_missing_rule_while_jobs_cannot_be_listed(
    server: KubeServer, tmp_path: Path
) -> None:
    server.apply(JOBS, job())
    server.forbidden |= {"list pytorchjobs", "list trainjobs"}
    async with assembled(server, tmp_path) as parts:
        cache = parts.tasks.cache
        await wait_until(lambda: RULE in cache.describe_incompleteness())
        for name, call in CALLS.items():
            with pytest.raises(ClusterUnavailable) as failed:
                await call(parts.jobs)
            assert RULE in str(failed.value), name
        with pytest.raises(CallFailed) as late:
            await parts.tasks.create_task(build_creation().SerializeToString())
        assert late.value.code is grpc.StatusCode.UNAVAILABLE
        assert RULE in late.value.details


async def test_first_list_is_awaited(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_service, "_READY_SECONDS", 30.0)
    server.apply(JOBS, job())
    async with assembled(server, tmp_path) as parts:
        assert await list_names(parts.jobs) == [NAME]
        assert parts.tasks.cache.describe_incompleteness() == ""

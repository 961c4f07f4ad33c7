"""Calls to a server that cannot list the jobs of its cluster."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from kube_server import KubeServer
from kube_world import JOBS, NAME, job, opened, options
from serving import Served, serving, wait_until
from tiny_service import code_of

from backend_plugin.core.job_lookup import JobNotFound
from backend_plugin.shell import connector_service, job_service
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.job_service import JobService
from kfpytorch_idl.v1 import job_service_pb2 as wire

RULE = "{apiGroups: [kubeflow.org], resources: [pytorchjobs], verbs: [list, watch]}"
CALLS: dict[str, Callable[[JobService], Awaitable[object]]] = {
    "list": lambda jobs: anext(jobs.list_jobs(wire.ListJobsRequest())),
    "watch": lambda jobs: anext(jobs.watch_jobs(wire.WatchJobsRequest())),
    "watch one": lambda jobs: anext(jobs.watch_jobs(wire.WatchJobsRequest(name=NAME))),
    "get": lambda jobs: jobs.get_job(wire.GetJobRequest(name=NAME)),
    "logs": lambda jobs: anext(jobs.read_logs(wire.ReadLogsRequest(name=NAME))),
    "cancel": lambda jobs: jobs.cancel_job(wire.CancelJobRequest(name=NAME)),
}


@asynccontextmanager
async def starting(server: KubeServer, folder: Path) -> AsyncIterator[Served]:
    """Run a connector that may not be ready."""
    async with (
        opened(options(server, folder)) as cluster,
        serving(folder, cluster, watch_status=cluster.watch_status, namespaces=("*",)) as here,
    ):
        yield here


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for the first list, which never succeeds here."""
    monkeypatch.setattr(job_service, "_READY_SECONDS", 0.1)
    monkeypatch.setattr(connector_service, "_CREATE_SECONDS", 1.0)


async def test_unknown_job_is_reported_with_the_kind_that_cannot_be_listed(server, tmp_path):
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1"}
    server.forbidden |= {"list trainjobs", "list events"}
    async with starting(server, tmp_path) as here:
        await wait_until(here.cache.ready.is_set)
        with pytest.raises(JobNotFound, match=r"resources: \[trainjobs\], verbs: \[list, watch\]") as failed:
            await here.parts.jobs.get_job(wire.GetJobRequest(name=NAME))
    assert "events" not in str(failed.value)


async def test_calls_fail_with_the_missing_rule_while_jobs_cannot_be_listed(server, tmp_path):
    server.apply(JOBS, job())
    server.forbidden |= {"list pytorchjobs", "list trainjobs"}
    async with starting(server, tmp_path) as here:
        await wait_until(lambda: RULE in here.cache.describe_incompleteness())
        for name, call in CALLS.items():
            with pytest.raises(ClusterUnavailable) as failed:
                await call(here.parts.jobs)
            assert RULE in str(failed.value), name
        code, details = await code_of(here.create())
    assert (code, RULE in details) == (grpc.StatusCode.UNAVAILABLE, True)


async def test_first_list_is_awaited(server, tmp_path, monkeypatch):
    monkeypatch.setattr(job_service, "_READY_SECONDS", 30.0)
    server.apply(JOBS, job())
    async with starting(server, tmp_path) as here:
        (part,) = [part async for part in here.parts.jobs.list_jobs(wire.ListJobsRequest())]
        assert [each.name for each in part.jobs] == [NAME]
        assert here.cache.describe_incompleteness() == ""

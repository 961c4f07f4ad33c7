"""Limits on open files: the server raises its own limit, and pods have the original limit."""

import resource

import pytest

from e2e.embedded.emulated import job, lines, opened, role


@pytest.fixture
def limits():
    """Yield a function that sets the soft limit of this process, and restore the limit at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda soft: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_server_raises_its_open_file_limit_but_pods_do_not(tmp_path, limits):
    limits(300)

    async with opened(tmp_path) as (cluster, recorded):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard > 300
        await cluster.create(job(Master=role("ulimit -n")))
        await recorded.state("Succeeded")
        assert await lines(cluster, "j-master-0") == ["300"]


async def test_pod_waits_with_an_event_when_open_files_are_exhausted(tmp_path, limits):
    async with opened(tmp_path) as (cluster, recorded):
        limits(70)
        await cluster.create(job(Master=role("exit 0")))
        await recorded.wait_until(lambda: recorded.events("FailedCreatePodSandBox"))
        limits(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        message = recorded.events("FailedCreatePodSandBox")[0].message
        assert "Too many open files: the limit is 70 (ulimit -n)" in message
        await recorded.state("Succeeded")

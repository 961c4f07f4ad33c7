"""The client for asyncio, called over a real channel."""

import asyncio
import inspect
from datetime import timedelta

import pytest
from served_jobs import TOKEN, ServedJobs, a_job, a_pod, serving_jobs

from backend_plugin import async_client, client, client_calls


def add_jobs(served: ServedJobs) -> None:
    served.apply(a_job("f1-n0-0-aaa", "Running"), a_pod("f1-n0-0-aaa", "worker-0"))
    for second in range(3):
        served.cluster.write("f1-n0-0-aaa-worker-0", second, f"step {second}")


async def test_job_is_read_awaited_and_cancelled() -> None:
    with serving_jobs() as served:
        add_jobs(served)
        server = served.endpoint
        lines = [line.text async for line in async_client.get_job_logs("f1", server=server)]
        with pytest.raises(async_client.NotEnded, match=r"within 2 s; its phase is RUNNING"):
            await async_client.wait_for_job("f1", timeout=timedelta(seconds=2), server=server)
        waiting = asyncio.create_task(async_client.wait_for_job("f1", server=server))
        await asyncio.sleep(0.3)
        cancelled = await async_client.cancel_job("f1", reason="enough", server=server)
        ended = await waiting
    assert lines == ["step 0", "step 1", "step 2"]
    assert (cancelled.phase_before, cancelled.job.verdict.phase) == ("RUNNING", "FAILED")
    assert (ended.verdict.phase, ended.verdict.reason) == ("FAILED", "Cancelled")


async def test_changes_are_streamed_until_the_generator_is_closed() -> None:
    with serving_jobs() as served:
        add_jobs(served)
        changes = async_client.watch_jobs(server=served.endpoint)
        first = await changes.__anext__()
        await changes.aclose()
    assert first.job.name == "f1-n0-0-aaa"


async def test_errors_match_those_of_the_synchronous_client() -> None:
    with serving_jobs(token=TOKEN) as served:
        given = client.Server(address=served.endpoint, token=TOKEN)
        with pytest.raises(client.NotFound, match="there is no job f9"):
            await async_client.get_job("f9", server=given)
        with pytest.raises(client.TokenRejected):
            await async_client.list_jobs(server=served.endpoint)
    with pytest.raises(client.ServerNotFound):
        await async_client.list_runtimes(server=given)


@pytest.mark.parametrize("name", [each for each in async_client.__all__ if each[0].islower()])
def test_both_clients_have_the_same_arguments(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(module, name)) for module in (async_client, client))
    assert ours.parameters == theirs.parameters


def test_longest_timeout_is_one_that_grpc_supports() -> None:
    wait = client_calls.JobWait("f1", None, timedelta.max)
    _, seconds = client_calls.build_packages_request("r", None, timedelta.max)
    assert wait.seconds == seconds == 1e9

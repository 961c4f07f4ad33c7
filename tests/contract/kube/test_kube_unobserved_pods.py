"""A job fails while the watch of its pods sends no data: the server lists the pods once before it reports."""

import asyncio
from typing import Any

import pytest
from kube_operator import Playing, create_running_job
from kube_server import Fault, KubeServer
from kube_world import connected
from scripted_cluster import ago
from serving import NAMESPACE, Served, wait_until

from backend_plugin.core.judging import verdict_annotation

ANNOTATION = verdict_annotation.ANNOTATION


async def wait_for_end(here: Served, meta: bytes) -> str:
    """Return the first phase after RUNNING, when the verdict has been stored."""
    while (phase := await here.phase(meta)) == "RUNNING":
        await asyncio.sleep(0.05)
    await wait_until(lambda: len(here.orders) == 0)
    return phase


def get_annotations(server: KubeServer) -> Any:
    (job,) = server.list_objects("pytorchjobs")
    return job["metadata"]["annotations"]


def fails(play: Playing) -> None:
    """Fail a worker with `sys.exit(3)`, which writes no error file."""
    ended = {"exitCode": 3, "reason": "Error", "startedAt": ago(30), "finishedAt": ago(8)}
    play.pod(
        "worker-0",
        phase="Failed",
        containerStatuses=[{"name": "pytorch", "state": {"terminated": ended}}],
    )
    # Long enough ago that the server does not wait for changes of pods.
    play.becomes("Failed", 7)


@pytest.mark.parametrize("protobuf", [True, False])
async def test_pods_of_a_failed_job_are_listed_once_and_the_verdict_is_final(server, tmp_path, protobuf):
    server.protobuf = protobuf
    async with connected(server, tmp_path) as here:
        play, meta = await create_running_job(server, here)
        server.muted.add("pods")
        fails(play)
        assert await wait_for_end(here, meta) == "FAILED"
        assert "worker-0 failed: exit code 3" in (await here.get(meta)).message
        # GetTask may return the verdict before the server has begun to write it.
        await wait_until(lambda: ANNOTATION in get_annotations(server))
        written = verdict_annotation.read(get_annotations(server)[ANNOTATION])
        assert (written.retry, written.reason) == (False, "ExitCode")
        assert server.asked.count(f"GET /api/v1/namespaces/{NAMESPACE}/pods") == 1


async def test_failed_pod_list_is_retried_before_a_verdict_is_reported(server, here, caplog):
    trouble = Fault(path=f"{NAMESPACE}/pods", times=1_000, code=503)
    play, meta = await create_running_job(server, here)
    server.muted.add("pods")
    server.faults.append(trouble)
    fails(play)
    await wait_until(lambda: "retrying in" in caplog.text)
    resource = await here.get(meta)
    assert resource.message == "the job has ended; its remaining state is being read"
    trouble.times = 0
    assert await wait_for_end(here, meta) == "FAILED"

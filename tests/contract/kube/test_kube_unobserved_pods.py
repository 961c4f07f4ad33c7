"""A job fails while the watch of its pods sends no data: the server lists the pods once before it reports."""

import asyncio
from typing import Any

import pytest
from kube_server import Fault, KubeServer
from kube_world import JOBS, PODS, ago, build_replica, connected
from serving import NAMESPACE, Served, is_phase, wait_until

from backend_plugin.core.job_ref import decode
from backend_plugin.core.judging import verdict_annotation

ANNOTATION = verdict_annotation.ANNOTATION


async def wait_for_end(here: Served, meta: bytes) -> str:
    """Return the first phase after RUNNING, when the verdict has been stored."""
    while (phase := await here.phase(meta)) == "RUNNING":
        await asyncio.sleep(0.05)
    await wait_until(lambda: len(here.orders) == 0)
    return phase


def the_job(server: KubeServer, name: str) -> Any:
    return server.get_object(JOBS, name, NAMESPACE)


def pod(server: KubeServer, name: str, replica: str, phase: str, state: Any) -> None:
    status = {"phase": phase, "containerStatuses": [{"name": "pytorch", "state": state}]}
    spec = {"nodeName": "n", "containers": [{"name": "pytorch"}]}
    metadata = build_replica(the_job(server, name), replica)
    server.apply(PODS, {"metadata": metadata, "spec": spec, "status": status})


def becomes(server: KubeServer, name: str, kind: str, since: float) -> None:
    """Set a condition of the job as the operator does."""
    condition = {"type": kind, "status": "True", "lastTransitionTime": ago(since)}
    status = {"startTime": ago(60), "conditions": [{**condition, "reason": f"PyTorchJob{kind}"}]}
    server.apply(JOBS, {**the_job(server, name), "status": status})


async def running(server: KubeServer, here: Served) -> tuple[bytes, str]:
    meta = await here.create()
    name = decode(meta).name
    becomes(server, name, "Running", 30)
    for replica in ("master-0", "worker-0"):
        pod(server, name, replica, "Running", {"running": {"startedAt": ago(30)}})
    await wait_until(lambda: is_phase(here, meta, "RUNNING"))
    await wait_until(lambda: all(len(entry.pods) == 2 for entry in here.cache))
    return meta, name


def fails(server: KubeServer, name: str) -> None:
    """Fail a worker with `sys.exit(3)`, which writes no error file."""
    ended = {"exitCode": 3, "reason": "Error", "startedAt": ago(30), "finishedAt": ago(8)}
    pod(server, name, "worker-0", "Failed", {"terminated": ended})
    # Long enough ago that the server does not wait for changes of pods.
    becomes(server, name, "Failed", 7)


@pytest.mark.parametrize("protobuf", [True, False])
async def test_pods_of_a_failed_job_are_listed_once_and_the_verdict_is_final(server, tmp_path, protobuf):
    server.protobuf = protobuf
    async with connected(server, tmp_path) as here:
        meta, name = await running(server, here)
        server.muted.add("pods")
        fails(server, name)
        assert await wait_for_end(here, meta) == "FAILED"
        assert "worker-0 failed: exit code 3" in (await here.get(meta)).message
        # GetTask may return the verdict before the server has begun to write it.
        await wait_until(lambda: ANNOTATION in the_job(server, name)["metadata"]["annotations"])
        written = verdict_annotation.read(the_job(server, name)["metadata"]["annotations"][ANNOTATION])
        assert (written.retry, written.reason) == (False, "ExitCode")
        assert server.asked.count(f"GET /api/v1/namespaces/{NAMESPACE}/pods") == 1


async def test_failed_pod_list_is_retried_before_a_verdict_is_reported(server, here, caplog):
    trouble = Fault(path=f"{NAMESPACE}/pods", times=1_000, code=503)
    meta, name = await running(server, here)
    server.muted.add("pods")
    server.faults.append(trouble)
    fails(server, name)
    await wait_until(lambda: "retrying in" in caplog.text)
    resource = await here.get(meta)
    assert resource.message == "the job has ended; its remaining state is being read"
    trouble.times = 0
    assert await wait_for_end(here, meta) == "FAILED"

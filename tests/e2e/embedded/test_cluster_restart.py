"""The state of a reopened cluster, after a shutdown and after its server was killed."""

import subprocess
import sys
from pathlib import Path

from e2e.embedded.emulated import job, lines, named, opened, read_first_line, role

SERVER = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from e2e.embedded.emulated import job, opened, role

async def serve(state, command):
    async with opened(Path(state), durable=True) as (cluster, seen):
        await cluster.create(job(Worker=role(command, 2)))
        await seen.phase("Running", "j-worker-0", "j-worker-1")
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(serve(*sys.argv[1:]))
"""


async def test_durable_job_continues_after_its_server_is_killed(tmp_path, state):
    counted = f"echo once >> {tmp_path}/runs; while ! [ -e {tmp_path}/go ]; do sleep 0.02; done; echo done"
    command = [sys.executable, "-c", SERVER, state, counted]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "ready\n"
        server.kill()

    async with opened(state, durable=True) as (cluster, recorded):
        before = {name: pod.uid for name, pod in recorded.pods.items()}
        assert recorded.phases == {"j-worker-0": "Running", "j-worker-1": "Running"}
        (tmp_path / "go").touch()
        await recorded.state("Succeeded")
        await recorded.phase("Succeeded", "j-worker-0", "j-worker-1")
        assert {name: pod.uid for name, pod in recorded.pods.items()} == before
        assert await lines(cluster, "j-worker-1") == ["done"]
    assert (tmp_path / "runs").read_text() == "once\n" * 2


async def test_pending_deletion_is_finished_by_the_next_server(tmp_path, state):
    stubborn = f"trap 'touch {tmp_path}/told' TERM; touch {tmp_path}/begun; while :; do sleep 0.02; done"
    async with opened(state, durable=True) as (cluster, recorded):
        await cluster.create(job(Worker=role(stubborn, terminationGracePeriodSeconds=2)))
        await recorded.wait_until((tmp_path / "begun").exists)
        await cluster.delete(named())
        await recorded.wait_until((tmp_path / "told").exists)
        assert set(recorded.phases) == {"j-worker-0"}
    async with opened(state, durable=True) as (cluster, recorded):
        await recorded.wait_until(lambda: not recorded.pods)
        assert await cluster.get(named()) is None
    assert list((state / "pods").iterdir()) == []


async def test_reopened_cluster_continues_with_the_same_pods(state):
    """Close the cluster before a pod starts. Pods stay pending without nodes."""
    async with opened(state, nodes=0) as (cluster, recorded):
        await cluster.create(job(Worker=role("exit 0", 2)))
        await recorded.phase("Pending", "j-worker-0", "j-worker-1")
        waits = await recorded.scheduled()
        assert waits.message == "no nodes available to schedule pods"
        before = {name: pod.uid for name, pod in recorded.pods.items()}
    async with opened(state) as (_, recorded):
        await recorded.state("Succeeded")
        assert {name: pod.uid for name, pod in recorded.pods.items()} == before


async def test_job_keeps_its_master_port_across_a_server_restart(state):
    says = role("echo $MASTER_PORT; exec sleep 60", restart_policy="ExitCode")
    async with opened(state, durable=True) as (cluster, recorded):
        await cluster.create(job(Master=says, Worker=says))
        await recorded.phase("Running", "j-master-0", "j-worker-0")
        port = await read_first_line(cluster, "j-master-0")
    async with opened(state, durable=True) as (cluster, recorded):
        first = recorded.pod("j-worker-0")
        await cluster.delete_pod(named("j-worker-0"))
        await recorded.replaced(first)
        await recorded.phase("Running", "j-worker-0")
        await cluster.create(job("k", Master=says))
        await recorded.phase("Running", "k-master-0")
        assert await read_first_line(cluster, "j-worker-0") == port
        assert await read_first_line(cluster, "k-master-0") != port
        for name in ("j", "k"):
            await cluster.delete(named(name))
        await recorded.wait_until(lambda: not recorded.pods)

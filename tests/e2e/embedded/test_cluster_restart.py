"""The state of a reopened cluster, writes that are repeated after the disk was full, and lost nodes."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from backend_plugin.core.errors import RequestRejected
from e2e.embedded.emulated import OURS, cpus, job, lines, named, opened, read_first_line, role

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
        assert (await recorded.scheduled()).message == "no nodes available to schedule pods"
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


async def test_failed_pod_start_is_retried(state, cluster, recorded):
    (state / "pods").rmdir()
    (state / "pods").touch()
    await cluster.create(job(Master=role("exit 0")))
    await recorded.wait_until(lambda: recorded.events("FailedCreatePodSandBox"))
    (state / "pods").unlink()
    (state / "pods").mkdir()
    await recorded.phase("Succeeded", "j-master-0")


class Room:
    """A disk that can reject updates with a restart count. It accepts all other writes."""

    def __init__(self, cluster):
        self.is_there = True
        self.refused = 0
        cluster._store._file.create_function("room", 1, self.look)
        cluster._store._execute(
            "CREATE TEMP TRIGGER room BEFORE UPDATE ON objects BEGIN SELECT room(new.body); END"
        )

    def look(self, body):
        if not self.is_there and b'"restarts"' in body:
            self.refused += 1
            raise OSError


@pytest.mark.parametrize("server", ["goes on", "is another one"])
async def test_recreated_pod_is_counted_once_after_failed_store_writes(state, tmp_path, server):
    command = f"[ -e {tmp_path}/ran ] && exit 0; touch {tmp_path}/ran; exit 130"

    async def count_restarts(cluster, recorded):
        await recorded.state("Succeeded")
        return (await cluster.get(named()))["status"]["replicaStatuses"]["Worker"]["restarts"]

    async with opened(state) as (cluster, recorded):
        room = Room(cluster)
        room.is_there = False
        await cluster.create(job(Worker=role(command, restart_policy="ExitCode")))
        await recorded.wait_until(lambda: room.refused > 1)
        # The failed pod must stay visible, or its restart would not count.
        assert recorded.phases == {"j-worker-0": "Failed"}
        if server == "goes on":
            room.is_there = True
            assert await count_restarts(cluster, recorded) == 1
    async with opened(state) as (cluster, recorded):
        assert await count_restarts(cluster, recorded) == 1


async def test_server_raises_its_open_file_limit(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
    try:
        async with opened(tmp_path):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert soft == hard > 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def options():
    return {"capacity": {"cpu": "1"}}


def worker(command):
    return role(command, restart_policy="ExitCode", resources=cpus("1"))


async def test_pods_of_a_lost_node_fail_and_are_recreated_elsewhere(tmp_path, cluster, recorded):
    alive = tmp_path / "alive"
    command = f"while :; do touch {alive}; sleep 0.02; done"
    await cluster.create(job(Worker=worker(command)))
    await recorded.phase("Running", "j-worker-0")
    first = recorded.pod("j-worker-0")
    cluster.nodes.fail_node(first.node)
    again = await recorded.replaced(first)
    (lost,) = {
        (each.phase, each.reason, each.disrupted.reason)
        for each in recorded.changes
        if getattr(each, "uid", "") == first.uid and getattr(each, "disrupted", None)
    }
    assert lost == ("Failed", "NodeLost", "DeletionByTaintManager")
    assert again.node != first.node
    assert len(recorded.events("TaintManagerEviction")) == 1


async def test_node_drain_evicts_pods_with_their_grace_period(cluster, recorded):
    await cluster.create(job(Worker=worker("trap 'exit 143' TERM; sleep 60 & wait")))
    await recorded.phase("Running", "j-worker-0")
    first = recorded.pod("j-worker-0")
    cluster.nodes.drain_node(first.node)
    again = await recorded.replaced(first)
    assert again.node != first.node
    ended = [each for each in recorded.changes if getattr(each, "uid", "") == first.uid][-1]
    assert (ended.disrupted.reason, ended.primary.ended.exit_code) == ("EvictionByEvictionAPI", 143)
    cluster.nodes.drain_node(again.node)
    waits = await recorded.scheduled(but=[first.uid, again.uid])
    assert waits.message.startswith("0/2 nodes are available: 2 node(s) were unschedulable.")
    cluster.nodes.restore_node(first.node)
    await recorded.phase("Running", "j-worker-0")


async def test_node_states_survive_a_server_restart(state):
    async with opened(state, nodes=3) as (cluster, _):
        cluster.nodes.fail_node("node-1")
        cluster.nodes.drain_node("node-2")
    async with opened(state, nodes=2) as (cluster, recorded):
        await cluster.create(job(Worker=role("exit 0")))
        waits = await recorded.scheduled()
        assert waits.message.startswith(
            "0/2 nodes are available: 1 node(s) had untolerated taint "
            "{node.kubernetes.io/unreachable: }, 1 node(s) were unschedulable."
        )
    async with opened(state, nodes=3) as (cluster, recorded):
        await recorded.state("Succeeded")
        assert recorded.pod("j-worker-0").node == "node-3"


async def test_error_of_an_unknown_node_lists_the_nodes(cluster):
    with pytest.raises(RequestRejected, match=r'^nodes "node-9" not found; the nodes are node-1, node-2$'):
        cluster.nodes.fail_node("node-9")


async def test_pod_with_a_node_name_runs_only_on_that_node(cluster, recorded):
    await cluster.create(job(Worker=role("exit 0", nodeName="node-2")))
    await recorded.state("Succeeded")
    assert recorded.pod("j-worker-0").node == "node-2"
    await cluster.create(job("k", Worker=role("exit 0", nodeName="node-9")))
    waits = await recorded.scheduled("k-worker-0")
    assert "2 node(s) didn't match Pod's node affinity/selector" in waits.message


async def test_gpu_annotation_of_an_author_is_ignored(state):
    worker_ = role("echo [$CUDA_VISIBLE_DEVICES]; exit 0", nodeName="node-1")
    annotations = {"kfpytorch.flyte.org/gpus": "0"}
    worker_["template"]["metadata"] = {"annotations": annotations, "labels": {OURS: "j"}}
    async with opened(state, nodes=1, capacity={"nvidia.com/gpu": "1"}) as (cluster, recorded):
        await cluster.create(job(Worker=worker_))
        await recorded.state("Succeeded")
        assert await lines(cluster, "j-worker-0") == ["[]"]

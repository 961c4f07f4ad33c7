"""Nodes that are lost, drained and restored, with real processes on them."""

import pytest

from backend_plugin.core.errors import RequestRejected
from e2e.embedded.emulated import OURS, cpus, job, lines, opened, role


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
    command = "trap 'exit 143' TERM; sleep 60 & wait"
    await cluster.create(job(Worker=worker(command)))
    await recorded.phase("Running", "j-worker-0")
    first = recorded.pod("j-worker-0")
    cluster.nodes.drain_node(first.node)
    again = await recorded.replaced(first)
    assert again.node != first.node
    ended = [each for each in recorded.changes if getattr(each, "uid", "") == first.uid][-1]
    assert ended.disrupted.reason == "EvictionByEvictionAPI"
    assert ended.primary.ended.exit_code == 143
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

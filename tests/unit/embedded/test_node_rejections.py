"""Pods that name their node: acceptance by the kubelet, and its messages."""

import pytest
from kept_objects import container, node, pod, stored

from backend_plugin.embedded.node_rejections import Rejection, decide_admission
from backend_plugin.embedded.scheduling_cycle import GPU_INDICES, Binding, read_node_info, read_pod_info

GPU = "nvidia.com/gpu"
LOST = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def claim(*, gpus="", taints=(), selector=None, **requests):
    asked = {GPU if key == "gpu" else key: value for key, value in requests.items()}
    spec = {"tolerations": list(taints), "nodeSelector": selector or {}}
    return read_pod_info(stored(pod("p", container(**asked), **spec), "u", annotations={GPU_INDICES: gpus}))


def verdict(asked, *there, taint=None, **capacity):
    has = node("node-1", **{GPU if key == "gpu" else key: value for key, value in capacity.items()})
    return decide_admission(
        asked, read_node_info({**has, "spec": {"taints": [taint] if taint else []}}), there
    )


def lack(resource, requested, used, capacity):
    said = f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, "
    return Rejection(reason=f"OutOf{resource}", message=f"{said}capacity: {capacity}")


def failed(predicate):
    return Rejection(reason=predicate, message=f"Predicate {predicate} failed")


@pytest.mark.parametrize(
    ("asked", "there", "capacity", "expected"),
    [
        (claim(cpu="3"), [claim(cpu="1500m")], {}, lack("cpu", 3000, 1500, 4000)),
        (claim(memory="9Gi"), [], {}, lack("memory", 9 << 30, 0, 8 << 30)),
        (claim(gpu="1"), [claim(gpu="1", gpus="0")], {"gpu": "1"}, lack(GPU, 1, 1, 1)),
        (claim(), [claim()], {"pods": "1"}, lack("pods", 1, 1, 1)),
        (claim(gpu="9", cpu="9", memory="9Gi"), [], {"gpu": "1"}, lack("cpu", 9000, 0, 4000)),
        (claim(cpu="9", selector={"zone": "b"}), [], {}, lack("cpu", 9000, 0, 4000)),
        (claim(selector={"zone": "b"}), [], {}, failed("NodeAffinity")),
        # A kubelet ignores resources that its node does not list.
        (claim(gpu="1"), [], {}, Binding(uid="u", node="node-1", gpus=[])),
        (claim(gpu="1"), [claim(gpu="1", gpus="0")], {"gpu": "2"}, Binding(uid="u", node="node-1", gpus=[1])),
        # GPU indices that the author sets are ignored.
        (claim(gpus="0,1"), [], {"gpu": "2"}, Binding(uid="u", node="node-1", gpus=[])),
    ],
)
def test_a_node_takes_what_it_has_room_for(asked, there, capacity, expected):
    assert verdict(asked, *there, **capacity) == expected


@pytest.mark.parametrize(
    ("taint", "tolerations", "expected"),
    [
        (CORDON, [], Binding(uid="u", node="node-1", gpus=[])),
        (LOST, [], failed("TaintToleration")),
        (LOST, [{"operator": "Exists"}], Binding(uid="u", node="node-1", gpus=[])),
    ],
)
def test_only_a_taint_that_would_evict_it_keeps_a_pod_off(taint, tolerations, expected):
    assert verdict(claim(taints=tolerations), taint=taint) == expected

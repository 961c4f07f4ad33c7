"""Node objects after each command."""

from kept_objects import AT_ONCE, BEGAN

from backend_plugin.embedded import node_states
from backend_plugin.embedded.nodes import read_node

OWN = {"key": "gpu", "effect": "NoSchedule"}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
    "lastTransitionTime": AT_ONCE,
}


def fresh(**capacity):
    return node_states.fresh("node-1", capacity={"cpu": "4", **capacity}, labels={"zone": "a"}, now=BEGAN)


def tainted():
    return {**fresh(), "spec": {"taints": [OWN]}}


def test_a_fresh_node_is_ready():
    assert fresh() == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1", "zone": "a"}},
        "spec": {},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}, "conditions": [READY]},
    }
    assert not node_states.is_lost(fresh())


def test_a_node_that_is_wanted_again_takes_pods_unless_somebody_has_drained_it():
    gone = node_states.dismissed(tainted())
    assert not read_node(gone).schedulable
    assert node_states.remade(gone, fresh()) == tainted()
    for drained in (node_states.cordoned(gone), node_states.dismissed(node_states.cordoned(tainted()))):
        assert not read_node(node_states.remade(drained, fresh())).schedulable
    assert node_states.restored(gone, BEGAN) == {**tainted(), "metadata": restored_metadata()}


def restored_metadata():
    return {**fresh()["metadata"], "annotations": {}}


def test_a_cordoned_node_takes_no_pods_until_it_is_restored():
    cordoned = node_states.cordoned(node_states.cordoned(tainted()))
    assert cordoned["spec"] == {
        "unschedulable": True,
        "taints": [OWN, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    assert not read_node(cordoned).schedulable
    assert not node_states.is_lost(cordoned)
    assert node_states.restored(cordoned, BEGAN) == tainted()


def test_a_lost_node_is_unreachable_until_it_is_restored():
    lost = node_states.lost(node_states.lost(tainted(), BEGAN), BEGAN)
    assert lost["spec"]["taints"] == [
        OWN,
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    ]
    assert node_states.is_lost(lost)
    assert node_states.restored(lost, BEGAN) == tainted()


def test_a_node_that_was_both_is_restored_from_both():
    both = node_states.lost(node_states.cordoned(fresh()), BEGAN)
    assert node_states.restored(both, BEGAN) == fresh()


def test_other_options_leave_a_node_in_its_state():
    stored = node_states.lost(fresh(), BEGAN)
    stored["metadata"] = {**stored["metadata"], "uid": "u", "resourceVersion": "7"}
    remade = node_states.remade(stored, fresh(cpu="8"))
    assert remade == {
        **stored,
        "status": {**stored["status"], "capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}},
    }

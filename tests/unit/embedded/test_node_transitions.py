"""Node objects after each command."""

from kept_objects import BEGAN

from backend_plugin.embedded import node_transitions
from backend_plugin.embedded.scheduling_cycle import read_node_info

OWN = {"key": "gpu", "effect": "NoSchedule"}


def fresh(**capacity):
    return node_transitions.build_node(
        "node-1", capacity={"cpu": "4", **capacity}, labels={"zone": "a"}, now=BEGAN
    )


def tainted():
    return {**fresh(), "spec": {"taints": [OWN]}}


def test_cordoned_node_is_unschedulable_until_it_is_restored():
    cordoned = node_transitions.cordon(node_transitions.cordon(tainted()))
    assert cordoned["spec"] == {
        "unschedulable": True,
        "taints": [OWN, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    assert not read_node_info(cordoned).schedulable
    assert not node_transitions.is_unreachable(cordoned)
    assert node_transitions.restore(cordoned, BEGAN) == tainted()


def test_failed_node_is_unreachable_until_it_is_restored():
    lost = node_transitions.mark_unreachable(node_transitions.mark_unreachable(tainted(), BEGAN), BEGAN)
    unreachable = [
        {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
    ]
    assert lost["spec"]["taints"] == [OWN, *unreachable]
    assert node_transitions.is_unreachable(lost)
    assert node_transitions.restore(lost, BEGAN) == tainted()
    both = node_transitions.mark_unreachable(node_transitions.cordon(fresh()), BEGAN)
    assert node_transitions.restore(both, BEGAN) == fresh()


def test_changed_options_keep_the_state_of_a_node():
    stored = node_transitions.mark_unreachable(fresh(), BEGAN)
    stored["metadata"] = {**stored["metadata"], "uid": "u", "resourceVersion": "7"}
    remade = node_transitions.merge_state(stored, fresh(cpu="8"))
    assert remade == {
        **stored,
        "status": {**stored["status"], "capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}},
    }

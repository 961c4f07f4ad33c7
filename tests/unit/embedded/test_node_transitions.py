"""Node objects: their capacity, and their state after each command."""

import os

from kept_objects import AT_ONCE, BEGAN

from backend_plugin.embedded import node_transitions
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.scheduling_cycle import read_node_info
from kfpytorch_common.quantity import parse

OWN = {"key": "gpu", "effect": "NoSchedule"}


def fresh(cpu="4"):
    return node_transitions.build_node("node-1", capacity={"cpu": cpu}, labels={"zone": "a"}, now=BEGAN)


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
    resources = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}
    expected = {**stored, "status": {**stored["status"], **resources}}
    assert node_transitions.merge_state(stored, fresh(cpu="8")) == expected


def test_each_node_has_the_capacity_of_this_machine(tmp_path):
    one, two = node_transitions.build_nodes(EmbeddedOptions(), tmp_path, BEGAN)
    assert [each["metadata"]["name"] for each in (one, two)] == ["node-1", "node-2"]
    assert one["status"] == two["status"]
    assert 1 <= int(one["status"]["capacity"]["cpu"]) <= os.cpu_count()
    assert parse(one["status"]["capacity"]["memory"]).whole > 2**27
    assert one["status"]["capacity"]["pods"] == "110"
    labels = {f"kubernetes.io/{key}" for key in ("arch", "hostname", "os")}
    assert set(one["metadata"]["labels"]) == {"node.kubernetes.io/instance-type", *labels}
    assert one["status"]["conditions"][0]["lastTransitionTime"] == AT_ONCE


def test_node_options_apply_to_each_node(tmp_path):
    capacity = {"cpu": "64", "example.com/fpga": "1"}
    options = EmbeddedOptions(nodes=3, capacity=capacity, labels={"zone": "a"})
    for each in node_transitions.build_nodes(options, tmp_path, BEGAN):
        assert capacity.items() <= each["status"]["allocatable"].items()
        assert each["metadata"]["labels"]["zone"] == "a"

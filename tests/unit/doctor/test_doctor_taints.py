"""Tests of the taints that exclude a role's pods from all nodes: which ones the doctor tolerates."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from backend_plugin.core.settings.loader import read
from backend_plugin.doctor.check import Violation
from backend_plugin.doctor.checks import nodes
from backend_plugin.doctor.facts import Facts, PlannedTask, RolePods, Subject

GPU = "nvidia.com/gpu"
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}]},
}
TEMPORARY = (
    *(
        f"node.kubernetes.io/{each}"
        for each in ("disk-pressure", "memory-pressure", "not-ready", "unreachable")
    ),
    *("node.cloudprovider.kubernetes.io/uninitialized", "ToBeDeletedByClusterAutoscaler"),
    *("DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted", "node.cilium.io/agent-not-ready"),
)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def node(name: str, *taints: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {GPU: "8", "pods": "110"},
        },
    }


def run_check(pod: dict[str, Any], *objects: dict[str, Any]) -> Sequence[Violation]:
    (check,) = (each for each in nodes.CHECKS if each.id == "node-taints")
    role = RolePods(name="worker", count=1, needed=1, pod=pod)
    return [
        *check.judge(Facts(namespace="n", objects={Subject.NODES: objects}, task=PlannedTask(roles=[role])))
    ]


def tolerations(remedy: str) -> list[dict[str, str]]:
    """Return the tolerations in the settings of a remedy."""
    settings = read(yaml.safe_load(remedy.removeprefix("write "))["plugins"]["k8s"])
    by_resource = settings.resource_tolerations.get(GPU, ())
    return [dict(each) for each in (*settings.default_tolerations, *by_resource)]


@pytest.mark.parametrize("key", TEMPORARY)
def test_temporary_taint_is_never_tolerated(key: str) -> None:
    (one,) = run_check(POD, node("a", taint(key), taint("team", "x")))
    assert "toleration" not in one.remedy
    assert one.remedy.startswith("kubectl describe node a  # ")
    # A node with only permanent taints is preferred.
    (one,) = run_check(POD, node("a", taint(key)), node("b", taint("team", "x")))
    assert [each["key"] for each in tolerations(one.remedy)] == ["team"]


def test_remedy_settings_remove_the_taint_finding() -> None:
    there = node("a", taint(GPU, "true"), taint("team", "1", "NoExecute"), taint("reserved"))
    (one,) = run_check(POD, there)
    pod = {**POD, "spec": {**POD["spec"], "tolerations": tolerations(one.remedy)}}
    assert run_check(pod, there) == []

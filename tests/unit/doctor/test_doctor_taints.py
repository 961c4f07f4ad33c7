"""Tests of the taints that exclude a role's pods from all nodes: which ones the doctor tolerates."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from remedy_cases import GPU, facts, node, role

from backend_plugin.core.settings.loader import read
from backend_plugin.doctor.check import Violation
from backend_plugin.doctor.checks import nodes
from backend_plugin.doctor.facts import Subject

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


def tainted(name: str, *taints: dict[str, str]) -> dict[str, Any]:
    return {**node(**{GPU: "8"}), "metadata": {"name": name}, "spec": {"taints": taints}}


def run_check(*objects: dict[str, Any], **spec: Any) -> Sequence[Violation]:
    """Return the violations for a pod that requests a GPU on these nodes."""
    (check,) = (each for each in nodes.CHECKS if each.id == "node-taints")
    return [*check.judge(facts({Subject.NODES: objects}, task=role(requests={GPU: "1"}, **spec)))]


def tolerations(remedy: str) -> list[dict[str, str]]:
    """Return the tolerations in the settings of a remedy."""
    settings = read(yaml.safe_load(remedy.removeprefix("write "))["plugins"]["k8s"])
    by_resource = settings.resource_tolerations.get(GPU, ())
    return [dict(each) for each in (*settings.default_tolerations, *by_resource)]


@pytest.mark.parametrize("key", TEMPORARY)
def test_temporary_taint_is_never_tolerated(key: str) -> None:
    (one,) = run_check(tainted("a", taint(key), taint("team", "x")))
    assert "toleration" not in one.remedy
    assert one.remedy.startswith("kubectl describe node a  # ")
    # A node with only permanent taints is preferred.
    (one,) = run_check(tainted("a", taint(key)), tainted("b", taint("team", "x")))
    assert [each["key"] for each in tolerations(one.remedy)] == ["team"]

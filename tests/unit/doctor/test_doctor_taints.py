"""Tests of the taints that exclude a role's pods from all nodes: which ones the doctor tolerates."""

from typing import Any

import pytest
import yaml
from remedy_cases import GPU, facts, node, role

from backend_plugin.core.settings.loader import read
from backend_plugin.doctor.checks import nodes
from backend_plugin.doctor.facts import Subject

PERMANENT = {"key": "team", "value": "x", "effect": "NoSchedule"}


def tainted(name: str, *taints: dict[str, str]) -> dict[str, Any]:
    return {**node(**{GPU: "8"}), "metadata": {"name": name}, "spec": {"taints": taints}}


def find_remedy(*objects: dict[str, Any]) -> str:
    """Return the remedy for a pod that requests a GPU on these nodes."""
    (check,) = (each for each in nodes.CHECKS if each.id == "node-taints")
    (violation,) = check.judge(facts({Subject.NODES: objects}, task=role(requests={GPU: "1"})))
    return violation.remedy


@pytest.mark.parametrize(
    "key", ["node.kubernetes.io/not-ready", "karpenter.sh/disrupted", "x/agent-not-ready"]
)
def test_temporary_taint_is_never_tolerated(key: str) -> None:
    temporary = {"key": key, "effect": "NoSchedule"}
    assert find_remedy(tainted("a", temporary, PERMANENT)).startswith("kubectl describe node a  # ")
    # A node with only permanent taints is preferred.
    remedy = find_remedy(tainted("a", temporary), tainted("b", PERMANENT))
    settings = read(yaml.safe_load(remedy.removeprefix("write "))["plugins"]["k8s"])
    assert [each["key"] for each in settings.default_tolerations] == ["team"]

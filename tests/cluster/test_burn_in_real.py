"""A burn-in on real nodes: replicas communicate over the pod network, or the finding has the reason."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rig.api import jobs, pods
from rig.backend import CHART_RULES, KFPYTORCH, environment
from rig.process import wait_for
from rig.propeller import IMAGE
from rig.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(300)

NAMESPACE = "burned"
TASKS = Path(__file__).with_name("burned.py")
BURNS = (
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["create", "get", "delete"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
)
"""The rights beyond reading that docs/reference/doctor.md lists."""
MEASURED = re.compile(
    r"(?P<ranks>\d) ranks in 2 pods on 2 nodes all-reduced with gloo on cpu \(torch \S+\), "
    r"bus bandwidth (?P<fast>[\d.e+-]+) GB/s at 1 MiB, [\d.e+-]+ GB/s at 8 MiB, [\d.e+-]+ GB/s at 32 MiB"
)


@pytest.fixture
def space(cluster: RealCluster) -> Iterator[RealCluster]:
    """The cluster with a namespace in which a burn-in must leave nothing."""
    cluster.plane.namespace(NAMESPACE)
    yield cluster
    assert cluster.admin.items(jobs(NAMESPACE)) == []
    wait_for(lambda: cluster.admin.items(pods(NAMESPACE)), lambda found: not found)


def account(cluster: RealCluster, name: str, rules: Sequence[Mapping[str, Any]]) -> Path:
    """Create a user with the rights of the chart's doctor, and with `rules` in the namespace."""
    cluster.admin.grant(name, CHART_RULES["doctor"])
    cluster.admin.grant(name, rules, NAMESPACE)
    return cluster.plane.certified(name)


def burned(kubeconfig: Path, task: str) -> tuple[Mapping[str, str], str]:
    """Run a burn-in; return its finding and its progress messages."""
    options = ["--kubeconfig", kubeconfig, "--namespace", NAMESPACE, "--image", IMAGE, "--output", "json"]
    ended = subprocess.run(
        [KFPYTORCH, "doctor", *options, TASKS, task, "--burn-in"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    (found,) = (each for each in json.loads(ended.stdout)["findings"] if each["id"] == "burn-in")
    return found, ended.stderr


@pytest.mark.parametrize(("task", "ranks"), [("pair", 2), ("elastic", 4)])
def test_burn_in_on_two_nodes_succeeds_with_the_documented_rights(
    space: RealCluster, task: str, ranks: int
) -> None:
    found, output = burned(account(space, "burner", BURNS), task)
    measured = MEASURED.search(found["sentence"])
    assert measured is not None, f"{found}\n{output}"
    assert (found["level"], int(measured["ranks"])) == ("note", ranks)
    assert float(measured["fast"]) > 0
    assert f"burn-in: deleted PyTorchJob {NAMESPACE}/burn-in-n0-0-" in output


def test_image_without_torch_is_reported(space: RealCluster) -> None:
    found, output = burned(space.plane.kubeconfig(), "torchless")
    assert found["level"] == "error", f"{found}\n{output}"
    assert "ModuleNotFoundError: No module named 'torch'" in found["sentence"], output
    assert "`python` with torch in the task's image" in found["remedy"]

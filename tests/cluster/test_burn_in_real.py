"""A burn-in on real nodes, whose replicas communicate over the pod network."""

import json
import re

import pytest
import training_tasks
from rig.api import jobs, pods
from rig.backend import CHART_RULES, KFPYTORCH, environment
from rig.process import run_command, wait_for
from rig.propeller import IMAGE

pytestmark = pytest.mark.timeout(300)

NAMESPACE = "burned"
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


def test_burn_in_on_two_nodes_succeeds_with_the_documented_rights(cluster):
    cluster.plane.namespace(NAMESPACE)
    cluster.admin.grant("burner", CHART_RULES["doctor"])
    cluster.admin.grant("burner", BURNS, NAMESPACE)
    kubeconfig = cluster.plane.certified("burner")
    options = ("--kubeconfig", kubeconfig, "--namespace", NAMESPACE, "--image", IMAGE, "--output", "json")
    task = (training_tasks.__file__, "reduces_apart")
    ended = run_command(KFPYTORCH, "doctor", *options, *task, "--burn-in", env=environment())
    (found,) = (each for each in json.loads(ended.stdout)["findings"] if each["id"] == "burn-in")
    measured = MEASURED.search(found["sentence"])
    assert measured is not None, f"{found}\n{ended.stderr}"
    assert (found["level"], measured["ranks"]) == ("note", "4")
    assert float(measured["fast"]) > 0
    assert f"burn-in: deleted PyTorchJob {NAMESPACE}/burn-in-n0-0-" in ended.stderr
    assert cluster.admin.items(jobs(NAMESPACE)) == []
    wait_for(lambda: cluster.admin.items(pods(NAMESPACE)), lambda found: not found)

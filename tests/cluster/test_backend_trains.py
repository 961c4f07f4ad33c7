"""End-to-end tests without simulation: propeller, our server, the operator, and training on two nodes.

`test_chart_installed` has a task that succeeds and one that fails, and `test_side_by_side` one that recovers.
"""

import pytest
import training_tasks
from rig.api import has_condition, pods
from rig.process import wait_for
from rig.propeller import NAMESPACE, list_owned

pytestmark = pytest.mark.timeout(600)
PLANE = "with_nodes"


def test_short_node_disconnection_costs_no_attempt(cluster, propeller):
    stop_file = cluster.shared / "one"
    execution = propeller.start(training_tasks.reduces_until_on_patient_pods, stop_file=str(stop_file))
    propeller.until_shown(execution, "RUNNING", 240)
    with cluster.without_network("node-2"):
        wait_for(
            lambda: list_pods_on_node(cluster, execution, "node-2"),
            lambda pod: not has_condition(pod, "Ready"),
            120,
        )
    stop_file.touch()
    propeller.wait_for_success(execution)
    assert propeller.attempts(execution) == 1


def test_lost_node_costs_one_attempt_and_leaves_no_pod(cluster, propeller):
    stop_file = cluster.shared / "two"
    execution = propeller.start(training_tasks.reduces_until, stop_file=str(stop_file))
    propeller.until_shown(execution, "RUNNING", 240)
    lost = list_pods_on_node(cluster, execution, "node-2")["metadata"]
    with cluster.without_network("node-2"):
        wait_for(lambda: list_phases(propeller, execution), lambda phases: (1, "RUNNING") in phases, 240)
        there = list_owned(cluster.admin, pods(NAMESPACE), execution)
        nodes = {each["spec"]["nodeName"] for each in there if "-n0-1-" in each["metadata"]["name"]}
        stop_file.touch()
    assert nodes == {"node-1"}
    (failed,) = (each for each in propeller.recorder.tasks(execution.name) if each.message)
    assert failed.attempt == 0
    assert "(node-lost)" in failed.message
    propeller.wait_for_success(execution)
    assert propeller.attempts(execution) == 2
    cluster.admin.wait_until_gone(pods(NAMESPACE, lost["name"]))


def list_pods_on_node(cluster, execution, node):
    (found,) = (
        each
        for each in list_owned(cluster.admin, pods(NAMESPACE), execution)
        if each["spec"]["nodeName"] == node
    )
    return found


def list_phases(propeller, execution):
    return {(each.attempt, each.phase) for each in propeller.recorder.tasks(execution.name)}

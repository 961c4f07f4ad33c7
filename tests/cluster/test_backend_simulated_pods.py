"""Tests with the real propeller, server, operator and scheduler; only the pods are simulated."""

import time

import training_tasks
from rig.api import jobs, pods
from rig.fake_nodes import RUN
from rig.process import wait_for
from rig.propeller import NAMESPACE, list_owned

# Longer than the replacement of a pod of our server, shorter than propeller's call timeout.
AWAY_SECONDS = 30


def test_job_is_deleted_with_its_execution_without_an_abort(plane, propeller):
    """Garbage collection deletes the job if its FlyteWorkflow is deleted while propeller is down."""
    execution = propeller.start(training_tasks.says_nothing)
    propeller.until_shown(execution, "RUNNING")
    (job,) = list_owned(plane.admin, jobs(NAMESPACE), execution)
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("FlyteWorkflow", execution.name)
    propeller.process.kill()
    try:
        propeller.remove(execution)
        is_gone(plane, propeller, execution)
    finally:
        propeller.process.start()


def test_unavailable_server_costs_no_attempt(plane, propeller, served):
    """The server is away while a task is created, while another runs and while a third is aborted."""
    runs = propeller.start(training_tasks.says_nothing, annotations={RUN: "15s"})
    aborted = propeller.start(training_tasks.says_nothing)
    propeller.until_shown(runs, "RUNNING")
    propeller.until_shown(aborted, "RUNNING")
    served.process.kill()
    made = propeller.start(training_tasks.says_nothing, annotations={RUN: "1s"})
    propeller.abort(aborted)
    time.sleep(AWAY_SECONDS)
    served.start()
    for execution in (runs, made):
        propeller.wait_for_success(execution)
        assert propeller.attempts(execution) == 1
    is_gone(plane, propeller, aborted)
    assert propeller.recorder.workflow(aborted.name)[-1] == "ABORTED"


def is_gone(plane, propeller, execution):
    plane.admin.wait_until_gone(propeller.path(execution))
    for path in (jobs(NAMESPACE), pods(NAMESPACE)):
        wait_for(lambda path=path: list_owned(plane.admin, path, execution), lambda found: not found)

"""Orphans with the real API server, garbage collector, operator and FlytePropeller."""

import json

import pytest
import training_tasks
from rig import backend
from rig.api import jobs, pods
from rig.backend import KFPYTORCH, RULES, Backend
from rig.control_plane import BACKEND
from rig.process import run_command, wait_for
from rig.propeller import NAMESPACE, list_owned

WITHOUT_WORKFLOWS = [rule for rule in RULES if rule["resources"] != ["flyteworkflows"]]


def gc(config, *flags):
    options = ("--kubeconfig", config, "--confirm-after", "200ms", "-o", "json")
    done = run_command(KFPYTORCH, "gc", *options, *flags)
    assert done.returncode == 0, done.stderr
    return [(each["name"], each["result"]) for each in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def served(plane, folder):
    """A server that may not read FlyteWorkflows, so that its jobs have no owner."""
    backend.permit(plane, WITHOUT_WORKFLOWS)
    with Backend(plane, folder) as served:
        yield served
    backend.permit(plane)


def test_orphans_of_a_deleted_execution_are_found_and_deleted(plane, propeller):
    left, lives = (propeller.start(training_tasks.says_nothing) for _ in range(2))
    for execution in (left, lives):
        propeller.until_shown(execution, "RUNNING")
    (job,) = list_owned(plane.admin, jobs(NAMESPACE), left)
    assert "ownerReferences" not in job["metadata"]
    propeller.process.kill()
    propeller.remove(left)
    plane.admin.wait_until_gone(propeller.path(left))

    config, here = plane.kubeconfig(BACKEND), ("--namespace", NAMESPACE, "--older-than", "0")
    backend.permit(plane)
    name = job["metadata"]["name"]
    assert (gc(config, "--namespace", NAMESPACE), gc(config, *here)) == ([], [(name, "orphan")])
    assert gc(config, *here, "--delete") == [(name, "deleted")]
    for path in (jobs(NAMESPACE), pods(NAMESPACE)):
        wait_for(lambda path=path: list_owned(plane.admin, path, left), lambda found: not found)
    phases = [each["status"]["phase"] for each in list_owned(plane.admin, pods(NAMESPACE), lives)]
    assert phases == ["Running"] * 2

    propeller.process.start()
    propeller.abort(lives)
    wait_for(lambda: list_owned(plane.admin, jobs(NAMESPACE), lives), lambda found: not found)

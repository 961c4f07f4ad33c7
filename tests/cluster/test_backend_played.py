"""Propeller, our server, the operator, the scheduler: all real; only pods are played, nothing is trained."""

from collections.abc import Iterator

import pytest
import workflows
from rig import backend
from rig.api import jobs, pods
from rig.backend import Backend
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import until
from rig.propeller import NAMESPACE, Options, Propeller


@pytest.fixture(scope="module")
def propeller(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Propeller]:
    folder = tmp_path_factory.mktemp("played")
    backend.permit(plane)
    with (
        Backend(plane, folder) as served,
        Propeller(plane, folder, Options(connector=served.endpoint)) as propeller,
    ):
        yield propeller


def test_a_job_is_made_followed_and_reported(plane: ControlPlane, propeller: Propeller) -> None:
    execution = propeller.start(workflows.says_nothing, annotations={RUN: "6s"})
    found = propeller.wait(execution)
    assert found["status"]["phase"] == 3, found["status"]
    phases = [each.phase for each in propeller.recorder.tasks(execution.name)]
    assert phases[-2:] == ["RUNNING", "SUCCEEDED"]


def test_an_abort_removes_the_job_and_its_pods(plane: ControlPlane, propeller: Propeller) -> None:
    execution = propeller.start(workflows.says_nothing)
    until(
        lambda: "RUNNING" in [each.phase for each in propeller.recorder.tasks(execution.name)],
        60,
        lambda: str(propeller.recorder.tasks(execution.name)),
    )
    selector = f"execution-id={execution.name}"
    assert len(plane.admin.items(pods(NAMESPACE), labelSelector=selector)) == 2
    propeller.abort(execution)
    until(lambda: propeller.found(execution) is None, 30, lambda: str(propeller.found(execution)))
    until(lambda: not plane.admin.items(pods(NAMESPACE), labelSelector=selector), 30, lambda: "pods are left")
    assert not plane.admin.items(jobs(NAMESPACE), labelSelector=selector)
    assert propeller.recorder.workflow(execution.name)[-1] == "ABORTED"

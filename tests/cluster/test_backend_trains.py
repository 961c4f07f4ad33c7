"""The whole road, nothing played: propeller, our server, the operator, and pods that train on two nodes."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import workflows
from rig import backend
from rig.api import jobs, pods
from rig.backend import Backend
from rig.process import until
from rig.propeller import NAMESPACE, Execution, Options, Propeller, error_of
from rig.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def propeller(cluster: RealCluster) -> Iterator[Propeller]:
    backend.permit(cluster.plane)
    folder = cluster.shared / "trains"
    folder.mkdir()
    served = Backend(cluster.plane, folder)
    with served, Propeller(cluster.plane, folder, Options(connector=served.endpoint)) as propeller:
        yield propeller


def test_replicas_train_and_their_outputs_come_back(cluster: RealCluster, propeller: Propeller) -> None:
    execution = propeller.start(workflows.succeeds, value=3)
    assert propeller.wait(execution, 240)["status"]["phase"] == 3
    assert propeller.outputs(execution) == {"o0": "rank 0 of 2: 3"}
    phases = [each.phase for each in propeller.recorder.tasks(execution.name)]
    assert phases[-1] == "SUCCEEDED"


def test_elastic_workers_on_two_nodes_reduce(cluster: RealCluster, propeller: Propeller) -> None:
    execution = propeller.start(workflows.reduces, value=20)
    propeller.until_shown(execution, "RUNNING", 240)
    nodes = {each["spec"]["nodeName"] for each in of(cluster, pods(NAMESPACE), execution)}
    assert len(nodes) == 2
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 3, error_of(found)
    assert propeller.outputs(execution) == {"o0": 41}


def test_a_failure_is_the_users_own_and_is_not_tried_again(propeller: Propeller) -> None:
    execution = propeller.start(workflows.fails, labels=31)
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 5
    assert "ValueError: batch 7 has 31 labels for 32 images" in str(error_of(found))
    assert propeller.attempts(execution) == 1
    last = propeller.recorder.tasks(execution.name)[-1]
    assert (last.phase, last.kind) == ("FAILED", "USER")


def test_a_recoverable_error_is_tried_again(propeller: Propeller) -> None:
    execution = propeller.start(workflows.recovers, value=1)
    assert propeller.wait(execution, 240)["status"]["phase"] == 3
    assert propeller.outputs(execution) == {"o0": 2}
    assert propeller.attempts(execution) == 2


def test_an_abort_stops_the_processes(cluster: RealCluster, propeller: Propeller) -> None:
    execution = propeller.start(workflows.sleeps)
    propeller.until_shown(execution, "RUNNING", 240)
    propeller.abort(execution)
    until(lambda: propeller.found(execution) is None, 60, lambda: str(propeller.found(execution)))
    for path in (jobs(NAMESPACE), pods(NAMESPACE)):
        until(lambda path=path: not of(cluster, path, execution), 60, lambda path=path: f"{path} are left")


def of(cluster: RealCluster, path: str, execution: Execution) -> Sequence[dict[str, Any]]:
    """The objects of an execution."""
    return cluster.admin.items(path, labelSelector=f"execution-id={execution.name}")

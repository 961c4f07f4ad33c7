"""The real FlytePropeller with our server and an embedded cluster, without pods of Kubernetes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import workflows
from rig.backend import environment
from rig.control_plane import ControlPlane, free_ports
from rig.process import Process
from rig.propeller import PropellerOptions, RealPropeller, error_of


@pytest.fixture(scope="module")
def propeller(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPropeller]:
    folder = tmp_path_factory.mktemp("embedded")
    (port,) = free_ports(1)
    kfpytorch = Path(sys.executable).with_name("kfpytorch")
    command = [
        kfpytorch,
        "serve",
        "--port",
        str(port),
        "--state-dir",
        folder / "state",
        "--allow-unauthenticated",
    ]
    served = Process(
        [*command, "--output-prefixes", folder.as_uri(), "--cpus", "8", "--memory", "64Gi"],
        folder / "server.log",
        environment=environment(),
        directory=Path(__file__).parent,
    )
    with served, RealPropeller(plane, folder, PropellerOptions(connector=f"127.0.0.1:{port}")) as propeller:
        yield propeller


def test_successful_task_returns_its_outputs(propeller: RealPropeller) -> None:
    execution = propeller.start(workflows.succeeds, value=3)
    assert propeller.wait_for_outputs(execution) == {"o0": "rank 0 of 2: 3"}
    shown = propeller.recorder.tasks(execution.name)
    assert [each.phase for each in shown][-1] == "SUCCEEDED"


def test_user_error_is_reported_and_not_retried(propeller: RealPropeller) -> None:
    execution = propeller.start(workflows.fails, labels=31)
    found = propeller.wait(execution)
    assert found["status"]["phase"] == 5
    assert "batch 7 has 31 labels for 32 images" in str(error_of(found))
    shown = propeller.recorder.tasks(execution.name)
    assert {each.attempt for each in shown} == {0}
    assert shown[-1].phase == "FAILED"

"""The real FlytePropeller with our server and an embedded cluster, without pods of Kubernetes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import training_tasks
from rig.backend import KFPYTORCH, environment
from rig.control_plane import ControlPlane, free_ports
from rig.process import Process
from rig.propeller import PropellerOptions, RealPropeller


@pytest.fixture(scope="module")
def propeller(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPropeller]:
    folder = tmp_path_factory.mktemp("embedded")
    (port,) = free_ports(1)
    command = [KFPYTORCH, "serve", "--port", str(port), "--state-dir", folder / "state"]
    command += ["--allow-unauthenticated", "--output-prefixes", folder.as_uri()]
    served = Process(
        [*command, "--cpus", "8", "--memory", "64Gi"],
        folder / "server.log",
        environment=environment(),
        directory=Path(__file__).parent,
    )
    with served, RealPropeller(plane, folder, PropellerOptions(connector=f"127.0.0.1:{port}")) as propeller:
        yield propeller


def test_outputs_and_user_errors_are_returned(propeller: RealPropeller) -> None:
    well = propeller.start(training_tasks.succeeds, value=3)
    badly = propeller.start(training_tasks.fails, labels=31)
    assert propeller.wait_for_outputs(well) == {"o0": "rank 0 of 2: 3"}
    assert "batch 7 has 31 labels for 32 images" in propeller.wait_for_failure(badly)
    assert propeller.attempts(badly) == 1
    last = propeller.recorder.tasks(badly.name)[-1]
    assert (last.phase, last.kind) == ("FAILED", "USER")

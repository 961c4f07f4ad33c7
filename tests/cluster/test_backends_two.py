"""Several servers for one cluster: any of them answers for any task, and each may be replaced at any time."""

from collections.abc import Iterator

import pytest
import workflows
from rig import backend
from rig.api import jobs
from rig.backend import Backend
from rig.balancer import Balancer
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.propeller import NAMESPACE, Options, Propeller

TASKS = 12


@pytest.fixture
def servers(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Backend]]:
    backend.permit(plane)
    one, two = (Backend(plane, tmp_path_factory.mktemp(f"server-{number}")) for number in (1, 2))
    with one, two:
        yield [one, two]


def test_no_task_notices_that_its_servers_are_replaced(
    plane: ControlPlane, servers: list[Backend], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        Balancer([each.endpoint for each in servers]) as balancer,
        Propeller(plane, tmp_path_factory.mktemp("two"), Options(connector=balancer.endpoint)) as propeller,
    ):
        begun = []
        for number in range(TASKS):
            begun.append(propeller.start(workflows.says_nothing, annotations={RUN: f"{5 + number}s"}))
            if number % 4 == 1:
                # One after the other, as a Deployment does: asked to end, and replaced.
                server = servers[number // 4 % 2]
                server.process.stop()
                server.start()
        for execution in begun:
            assert propeller.wait(execution)["status"]["phase"] == 3
            assert propeller.attempts(execution) == 1
            found = plane.admin.items(jobs(NAMESPACE), labelSelector=f"execution-id={execution.name}")
            assert len(found) == 1

"""A real cluster for the tests that want one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import fake_nodes, operator, scheduling
from rig.control_plane import ControlPlane

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this tier has its mark; a test that takes a minute here is no long one."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a cluster keeps its state and its logs."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="session")
def plane(folder: Path) -> Iterator[ControlPlane]:
    """The control plane, with the training-operator, the scheduler and four nodes that are played."""
    with ControlPlane(folder) as plane:
        scheduling.start(plane)
        operator.start(plane)
        fake_nodes.start(plane, 4, {"nvidia.com/gpu": "4"})
        yield plane

"""A real cluster for the tests that want one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig import fake_nodes, operator, scheduling
from rig.control_plane import ControlPlane


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a cluster keeps its state and its logs."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="session")
def plane(folder: Path) -> Iterator[ControlPlane]:
    """The control plane, with the training-operator, the scheduler and four nodes that are played."""
    if shutil.which("go") is None and "KFPYTORCH_TOOLS" not in os.environ:
        pytest.exit("the cluster tier is built with Go: put `go` on the PATH", returncode=75)
    with ControlPlane(folder) as plane:
        scheduling.start(plane)
        operator.start(plane)
        fake_nodes.start(plane, 4, {"nvidia.com/gpu": "4"})
        yield plane

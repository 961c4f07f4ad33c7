"""A node and a cluster that are opened for one test."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from backend_plugin.embedded.cluster import EmbeddedCluster
from e2e.embedded.emulated import RecordedObjects, following
from e2e.embedded.running_pods import RunningNode, node


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def recorded() -> RecordedObjects:
    """The objects and changes of the test's cluster."""
    return RecordedObjects()


@pytest.fixture
def options() -> dict[str, Any]:
    """Options of the cluster or the node. A module may have its own."""
    return {}


@pytest.fixture
def cluster(
    state: Path, recorded: RecordedObjects, options: dict[str, Any]
) -> AbstractAsyncContextManager[EmbeddedCluster]:
    return following(state, recorded, **options)


@pytest.fixture
def kubelet(tmp_path: Path, options: dict[str, Any]) -> AbstractAsyncContextManager[RunningNode]:
    return node(tmp_path, **options)

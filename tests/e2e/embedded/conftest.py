"""A node and a cluster that are opened for one test."""

import pytest

from e2e.embedded.emulated import RecordedObjects, following
from e2e.embedded.running_pods import node


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def recorded():
    return RecordedObjects()


@pytest.fixture
def options():
    """Options of the cluster or the node. A module may have its own."""
    return {}


@pytest.fixture
def cluster(state, recorded, options):
    return following(state, recorded, **options)


@pytest.fixture
def kubelet(tmp_path, options):
    return node(tmp_path, **options)

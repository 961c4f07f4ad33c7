"""Fixtures for tests with a fake API server."""

import pytest
from kube_server import served
from kube_world import connected, opened, options
from serving import NAMESPACE


@pytest.fixture
def server():
    with served() as server:
        server.objects.namespaces[NAMESPACE] = "Active"
        yield server


@pytest.fixture
def cluster(server, tmp_path):
    """A client of the server; the event loop of the test opens and closes it."""
    return opened(options(server, tmp_path))


@pytest.fixture
def here(server, tmp_path):
    return connected(server, tmp_path)

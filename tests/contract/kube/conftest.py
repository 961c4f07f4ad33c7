"""Fixtures for tests with a fake API server."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from kube_server import KubeServer, served
from kube_world import connected, opened, options
from serving import NAMESPACE, Served

from backend_plugin.kube.cluster import KubernetesCluster


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with served() as server:
        server.objects.namespaces[NAMESPACE] = "Active"
        yield server


@pytest.fixture
def cluster(server: KubeServer, tmp_path: Path) -> AbstractAsyncContextManager[KubernetesCluster]:
    """A client of the server; the event loop of the test opens and closes it."""
    return opened(options(server, tmp_path))


@pytest.fixture
def here(server: KubeServer, tmp_path: Path) -> AbstractAsyncContextManager[Served]:
    """A connector that uses the server."""
    return connected(server, tmp_path)

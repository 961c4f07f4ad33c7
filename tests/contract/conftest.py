"""Adds this folder to the import path for its subfolders, and shortens the pauses of the product."""

import pytest
from serving import ready_server

from backend_plugin.kube import list_watch
from backend_plugin.shell import output_collector


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    """Shorten the pauses before a list is repeated, and before late files are searched again."""
    monkeypatch.setattr(list_watch, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(output_collector, "READ_PAUSES", (0.0, 0.05, 0.1))


@pytest.fixture
def served(tmp_path):
    """A connector that is ready; the event loop of the test starts and stops it."""
    return ready_server(tmp_path)

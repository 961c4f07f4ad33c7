"""Tests that need an NVIDIA GPU. `make gpu` selects them, and fails on a machine without one."""

import importlib.util
from pathlib import Path

import pytest
from e2e.conftest import pyflyte

__all__ = ["pyflyte"]

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
for package, file in (("trl", "test_gpu_recipes.py"), ("jax", "test_gpu_jax.py")):
    if not importlib.util.find_spec(package):
        collect_ignore_glob.append(file)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.torch)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))

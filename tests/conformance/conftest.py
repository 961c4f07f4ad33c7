"""The references of the comparison: upstream's Python package in its own environment, and Flyte's Go plugin.

Each is built once per version of its sources, under the user's cache directory. The build needs the network.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from benchmarks.upstream import find_environment

HERE = Path(__file__).parent
GO_SOURCES = [*sorted((HERE / "goplugin").glob("*.go")), HERE / "goplugin/go.mod", HERE / "goplugin/go.sum"]
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flytekitplugins-kfpytorch"


@pytest.fixture(scope="session")
def upstream():
    """Return the path of a virtual environment that contains upstream's package."""
    return find_environment()


@pytest.fixture
def upstream_tests(upstream, tmp_path):
    (archive,) = (upstream / "source").glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    return next(tmp_path.glob("*/tests"))


@pytest.fixture(scope="session")
def go_plugin():
    """Return the path of the program that calls Flyte's Go plugin. A build takes minutes."""
    key = hashlib.sha256(b"".join(source.read_bytes() for source in GO_SOURCES)).hexdigest()[:16]
    program = CACHES / f"goplugin-{key}" / "goplugin"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            pytest.fail("Flyte's Go plugin is built with Go 1.26 or newer; put `go` on the PATH")
        built = program.with_suffix(".new")
        flags = ("-mod=readonly", "-trimpath", "-ldflags=-s -w")
        subprocess.run([go, "build", *flags, "-o", built, "."], cwd=HERE / "goplugin", check=True)
        built.rename(program)
    return program

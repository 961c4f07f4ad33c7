"""The references of the comparison: upstream's Python package in its own environment, and Flyte's Go plugin.

Each is built once per version of its sources, under the user's cache directory. The build needs the network.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LOCK = HERE.parents[1] / "requirements.lock"
PINNED = HERE / "upstream.txt"
GO_SOURCES = [*sorted((HERE / "goplugin").glob("*.go")), HERE / "goplugin/go.mod", HERE / "goplugin/go.sum"]
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flytekitplugins-kfpytorch"


@pytest.fixture(scope="session")
def upstream() -> Path:
    """Return the path of a virtual environment that contains upstream's package."""
    key = hashlib.sha256(LOCK.read_bytes() + PINNED.read_bytes()).hexdigest()[:16]
    home = CACHES / f"upstream-{key}-{sys.version_info[0]}.{sys.version_info[1]}"
    ready = home / ".ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(sys.executable, "-m", "venv", home)
        python = home / "bin" / "python"
        uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        _run(uv, "pip", "install", "--python", python, "--require-hashes", "--requirement", LOCK)
        _run(
            uv, "pip", "install", "--python", python, "--no-deps", "--require-hashes", "--requirement", PINNED
        )
        source = ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
        _run(python, "-m", "pip", "download", *source, "--dest", home / "source", "--requirement", PINNED)
        ready.touch()
    return home


@pytest.fixture
def upstream_tests(upstream: Path, tmp_path: Path) -> Path:
    """Unpack upstream's own tests and return their directory."""
    (archive,) = (upstream / "source").glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    return next(tmp_path.glob("*/tests"))


@pytest.fixture(scope="session")
def go_plugin() -> Path:
    """Return the path of the program that calls Flyte's Go plugin. A build takes minutes."""
    key = hashlib.sha256(b"".join(source.read_bytes() for source in GO_SOURCES)).hexdigest()[:16]
    program = CACHES / f"goplugin-{key}" / "goplugin"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            pytest.fail("Flyte's Go plugin is built with Go 1.26 or newer; put `go` on the PATH")
        built = program.with_suffix(".new")
        flags = ("-mod=readonly", "-trimpath", "-ldflags=-s -w")
        _run(go, "build", *flags, "-o", built, ".", cwd=HERE / "goplugin")
        built.rename(program)
    return program


def _run(*command: object, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, cwd=cwd
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")

"""Upstream's package, installed in an environment of its own, and its source distribution.

Made once for each lock and interpreter, under the user's cache directory; needs the network then.
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


@pytest.fixture(scope="session")
def upstream() -> Path:
    """The environment with upstream's package in it."""
    key = hashlib.sha256(LOCK.read_bytes() + PINNED.read_bytes()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flytekitplugins-kfpytorch"
    home = caches / f"upstream-{key}-{sys.version_info[0]}.{sys.version_info[1]}"
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
    """Upstream's own tests, unpacked."""
    (archive,) = (upstream / "source").glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    return next(tmp_path.glob("*/tests"))


def _run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")

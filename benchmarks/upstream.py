"""Install upstream's published plugin in a separate environment.

The environment is in the user's cache directory, and tests/conformance uses it, too. It is created when it is
first used, which requires the network.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.measure import HERE

NAME: Final = "the published plugin"
_ROOT: Final = Path(__file__).parents[1]
_LOCK: Final = _ROOT / "requirements.lock"
PINNED: Final = _ROOT / "tests" / "conformance" / "upstream.txt"


@functools.cache
def find_environment() -> Path:
    """Return the directory of the environment; create it and compile its modules if necessary."""
    key = hashlib.sha256(_LOCK.read_bytes() + PINNED.read_bytes()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flytekitplugins-kfpytorch"
    home = caches / f"upstream-{key}-{sys.version_info[0]}.{sys.version_info[1]}"
    if not (home / ".ready").exists():
        _make(home)
    if not (home / ".compiled").exists():
        _call(home / "bin" / "python", "-m", "compileall", "-q", "-j", "0", home / "lib", check=False)
        (home / ".compiled").touch()
    return home


def _make(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    _call(sys.executable, "-m", "venv", home)
    python, uv = home / "bin" / "python", HERE / "bin" / "uv"
    install = [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes"]
    _call(*install, "--requirement", _LOCK)
    _call(*install, "--no-deps", "--requirement", PINNED)
    # tests/conformance needs the source, because it runs upstream's tests.
    source = ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
    _call(
        python,
        "-m",
        "pip",
        "download",
        "--quiet",
        *source,
        "--dest",
        home / "source",
        "--requirement",
        PINNED,
    )
    (home / ".ready").touch()


def _call(*command: object, check: bool = True) -> None:
    # compileall fails for files that are templates rather than Python code.
    subprocess.run([str(part) for part in command], check=check, stdout=subprocess.DEVNULL)

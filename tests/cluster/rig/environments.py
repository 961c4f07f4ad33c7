"""Environments with the locked packages of a folder of `tests/cluster/tools`, in the user's cache."""

import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from rig.tools import CACHES, SOURCES, cached_folder

_UV: Final = Path(sys.executable).with_name("uv")
_MINUTES: Final = 600


@cache
def install(tool: str) -> Path:
    """Return the environment; install the locked packages if they have changed."""
    lock = SOURCES / tool / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    home = CACHES / tool / digest[:16]
    if not home.exists():
        with cached_folder(home) as made:
            python = made / "bin/python"
            _run_uv("venv", "--relocatable", "--python", sys.executable, str(made))
            _run_uv(
                "pip", "sync", "--python", str(python), "--compile-bytecode", "--require-hashes", str(lock)
            )
    return home


def find_packages(tool: str) -> Path:
    """Return the folder with the packages of the environment."""
    (folder,) = install(tool).glob("lib/python*/site-packages")
    return folder


def _run_uv(*words: str) -> None:
    subprocess.run([_UV, "--quiet", *words], check=True, timeout=_MINUTES)

"""The Kubeflow SDK in its own environment, because it excludes the Kubernetes client of this project."""

import hashlib
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from rig.tools import CACHES, SOURCES

PROGRAM: Final = SOURCES / "kubeflow-sdk/observe.py"
"""The program that observes TrainJobs with the SDK."""
_LOCK: Final = SOURCES / "kubeflow-sdk/requirements.lock"
_UV: Final = Path(sys.executable).with_name("uv")
_MINUTES: Final = 600


@cache
def python() -> Path:
    """Return the interpreter of the environment; install the locked packages if they have changed."""
    digest = hashlib.sha256(_LOCK.read_bytes() + sys.version.encode()).hexdigest()
    home = CACHES / "kubeflow-sdk" / digest[:16]
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        # Rename a complete environment, so that an interrupted or concurrent call leaves no partial one.
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            made = Path(scratch) / "environment"
            _run_uv("venv", "--relocatable", "--python", sys.executable, str(made))
            _run_uv("pip", "sync", "--python", str(made / "bin/python"), "--require-hashes", str(_LOCK))
            try:
                made.rename(home)
            except OSError:
                if not home.exists():
                    raise
    return home / "bin/python"


def _run_uv(*words: str) -> None:
    subprocess.run([_UV, "--quiet", *words], check=True, timeout=_MINUTES)

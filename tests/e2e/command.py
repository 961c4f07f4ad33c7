"""`pyflyte run` as a person types it: in a process of its own, from the root of the repository."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYFLYTE = str(Path(sys.executable).with_name("pyflyte"))


def pyflyte_run(*words: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end; standard error goes where standard output goes, as on a screen."""
    return subprocess.run(
        [PYFLYTE, "run", *map(str, words)],
        check=False,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )

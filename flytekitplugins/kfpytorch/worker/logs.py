"""Where a run's logs are kept, and its passing files."""

import atexit
import datetime
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

LOG_DIR: Final = "FLYTE_KFPYTORCH_LOG_DIR"

# Of runs before this one; older logs make room.
_KEPT: Final = 50

_workspace: str | None = None


def directory(task: str) -> Path | None:
    """A new directory for the logs of a run of `task`; None when there is no place to write."""
    root = _root()
    now = datetime.datetime.now(datetime.timezone.utc)
    name = re.sub(r"[^\w.-]+", "-", task)[-80:]
    made = root / f"{now:%Y%m%d-%H%M%S}-{now.microsecond:06d}-{name}"
    try:
        made.mkdir(parents=True)
    except OSError:
        return None
    for old in sorted(root.iterdir())[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return made


def _root() -> Path:
    said = os.environ.get(LOG_DIR)
    if said:
        return Path(said)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "kfpytorch" / "runs"


def workspace() -> str:
    """The directory for files that flytekit makes in workers; removed when this process ends.

    Not earlier: a file that the task returned is read after the workers are gone.
    """
    global _workspace  # noqa: PLW0603 - one for the process.
    if _workspace is None or not Path(_workspace).exists():
        _workspace = tempfile.mkdtemp(prefix="kfpytorch-")
        atexit.register(_remove, _workspace, os.getpid())
    return _workspace


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)

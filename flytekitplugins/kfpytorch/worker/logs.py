"""Where a run's logs are kept, and its passing files."""

import atexit
import datetime
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOG_DIR: Final = "FLYTE_KFPYTORCH_LOG_DIR"

# Of runs before this one; older logs make room.
_KEPT: Final = 50
# The directory may be one that a person named, with other things in it.
_OURS: Final = re.compile(r"\d{8}-\d{6}-\d{6}-.")

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
    ours = sorted(path for path in root.iterdir() if path.is_dir() and _OURS.match(path.name))
    for old in ours[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return made


def _root() -> Path:
    said = os.environ.get(LOG_DIR)
    if said:
        return Path(said)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "kfpytorch" / "runs"


def private_path(place: str | None) -> Path:
    """A name in `place`, or among the temporary files, that nobody has and that tells whose it is."""
    return Path(place or tempfile.gettempdir()) / f"kfpytorch-{os.getpid()}-{secrets.token_hex(8)}"


def workspace(announce: Callable[[str], None]) -> str:
    """The directory for files that flytekit makes in workers; removed when this process ends.

    Not earlier: a file that the task returned is read after the workers are gone.

    Args:
        announce: Told the path before it is made, so that somebody removes it if we cannot.
    """
    global _workspace  # noqa: PLW0603 - one for the process.
    path = Path(_workspace) if _workspace else private_path(None)
    announce(str(path))
    if not path.exists():
        path.mkdir(mode=0o700)
        atexit.register(_remove, str(path), os.getpid())
    _workspace = str(path)
    return _workspace


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)

"""The log directory and the temporary directories of a run."""

import contextlib
import datetime
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kfpytorch_common.forkserver.client import Client

LOG_DIR: Final = "FLYTE_KFPYTORCH_LOG_DIR"

# Number of earlier runs with logs; older logs are deleted.
_KEPT: Final = 50
# Names of our log directories, because the directory that the user set may contain other files.
_OURS: Final = re.compile(r"\d{8}-\d{6}-\d{6}-.")

_MEMORY: Final = "/dev/shm"  # noqa: S108 - only private directories are created in it.
_ROOM: Final = 512 * 1024 * 1024


def create_log_directory(task: str, warn: Callable[[str], None]) -> Path:
    """Create a directory for the logs of a run of `task`, and delete the logs of old runs.

    If the configured directory is not writable, create a temporary directory, and pass a warning to `warn`.

    Raises:
        OSError: The directory for temporary files is not writable either.
    """
    root = _get_log_root()
    now = datetime.datetime.now(datetime.timezone.utc)
    name = re.sub(r"[^\w.-]+", "-", task)[-80:]
    directory = root / f"{now:%Y%m%d-%H%M%S}-{now.microsecond:06d}-{name}"
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        directory = Path(tempfile.mkdtemp(prefix="logs-of-kfpytorch-"))
        problem = f"cannot create logs in {root} ({error.strerror})"
        warn(f"{problem}: they are in {directory}; set {LOG_DIR} to a writable directory")
        return directory
    run_directories = sorted(path for path in root.iterdir() if path.is_dir() and _OURS.match(path.name))
    for old in run_directories[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return directory


def _get_log_root() -> Path:
    if configured := os.environ.get(LOG_DIR):
        return Path(configured)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "kfpytorch", "runs")


def build_private_path(place: str | None) -> Path:
    """Return an unused path in `place`, or in the directory for temporary files if `place` is None.

    The name of the path contains the process id.
    """
    return Path(place or tempfile.gettempdir()) / f"kfpytorch-{os.getpid()}-{secrets.token_hex(8)}"


@contextlib.contextmanager
def create_scratch(client: Client, needed: int) -> Iterator[Path]:
    """Create a directory for the duration of a run, in ``/dev/shm`` if this has room for `needed` bytes.

    The path is first registered with `client`, so that the fork server removes the directory if this process
    is killed.
    """
    path = build_private_path(_find_memory_root(needed))
    client.add_scratch(str(path))
    lock = _create_locked(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _create_locked(path: Path) -> int:
    while True:
        path.mkdir(mode=0o700)
        descriptor = os.open(path, os.O_RDONLY)
        with contextlib.suppress(OSError):  # A network file system may not support locks.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return descriptor
        os.close(descriptor)  # Another run removed it as a leftover before it was locked.


def _find_memory_root(needed: int) -> str | None:
    """Return ``/dev/shm`` if it is writable and has room for `needed` bytes, else None.

    First, remove the directories of killed runs from ``/dev/shm``.
    """
    if not os.access(_MEMORY, os.W_OK):
        return None
    for path in Path(_MEMORY).glob("kfpytorch-*-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove_if_unlocked(path)
    room = os.statvfs(_MEMORY)
    return _MEMORY if room.f_bavail * room.f_frsize > _ROOM + 2 * needed else None


def _remove_if_unlocked(path: Path) -> None:
    """Remove the directory of a killed run, unless a process holds the lock of the directory.

    A run in another container can share ``/dev/shm``. Its process id does not exist in this container, but it
    holds the lock.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # Another process removed it, or another user owns it.
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def create_workspace(client: Client) -> Iterator[str]:
    """Create a directory for files that flytekit creates in workers, and remove it after the run.

    The directory stays if a successful run leaves files in it, because the task may have returned them.
    """
    path = build_private_path(None)
    client.add_scratch(str(path))
    path.mkdir(mode=0o700)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, path, ignore_errors=True)
        yield str(path)
        if any(each.is_file() for each in path.rglob("*")):
            client.keep_scratch(str(path))
            undo.pop_all()

"""One server for one state directory, which is used only if it was made for that.

Lives here: the marker and the lock. Does not: what else is in the directory.
"""

import fcntl
import os
import stat
from pathlib import Path
from typing import Final, TextIO

from backend_plugin.core.errors import BackendError
from backend_plugin.shell import discovery

_OWNER_ONLY: Final = 0o700
_OWNER_FILE: Final = 0o600

MARKER: Final = "kfpytorch-state"
"""The file without which nothing in a directory is ours to change or to remove."""
_TEXT: Final = b"The embedded cluster of kfpytorch keeps its state here, and removes what it has put here.\n"
_EARLIER: Final = frozenset({"lock", "objects.sqlite", "pods"})
"""A release without a marker has left these."""
_HARMLESS: Final = frozenset({"lost+found", "runs"})
"""Of a file system of its own; of local runs, whose logs are in the default directory."""

USABLE: Final = (
    "see that this user may write there and that the disk has room, or use another state directory"
)
"""What to do about a directory that cannot be used as it is."""


class StateUnusable(BackendError):
    """The directory with a cluster's state cannot be used, and why."""


class StateLock:
    """Held by the process that may use a state directory; it goes with the process, however that ends."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @classmethod
    def take(cls, directory: Path) -> "StateLock":
        """Take `directory`; a new one is for its owner only, one that is there keeps its mode.

        Raises:
            StateUnusable: If another process has it, with that one's id; if it cannot be made; or if it
                holds files and was not made for this.
        """
        try:
            # What tasks are given in their environment is nobody else's to read.
            directory.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            if why_not := find_foreign_files(directory):
                raise StateUnusable(f"{directory}: {why_not}")
            _mark(directory)
            file = os.fdopen(open_own(directory / "lock"), "r+", encoding="ascii")
        except OSError as error:
            raise StateUnusable(f"{directory}: {error.strerror or error}; {USABLE}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise StateUnusable(
                f"{directory}: is in use by process {owner}; stop that server, or use another state directory"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Let others have it."""
        self._file.close()


def find_foreign_files(directory: Path) -> str:
    """Return why a directory is not one of ours and what to do; empty if it may be used."""
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return ""
    address = discovery.file(directory).name
    foreign = names - _HARMLESS - {address, f"{address}.new"}
    if MARKER in names or not foreign or names >= _EARLIER:
        return ""
    return (
        f"holds files that are not of an embedded cluster, such as {min(foreign)!r}; name a new or an empty "
        f"directory (--state), or create {directory / MARKER} if this one may be used"
    )


def _mark(directory: Path) -> None:
    if not os.path.lexists(directory / MARKER):
        with os.fdopen(open_own(directory / MARKER), "wb") as file:
            file.write(_TEXT)


def open_own(path: Path) -> int:
    """Return a descriptor of a file of ours, which is made if it is not there."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _OWNER_FILE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path.name} is no regular file")
    return fd

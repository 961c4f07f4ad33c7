"""One server for one state directory."""

import fcntl
import os
from pathlib import Path
from typing import Final, TextIO

from backend_plugin.core.errors import BackendError

_OWNER_ONLY: Final = 0o700

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
        """Take `directory`, which is made if it is not there, for its owner alone.

        Raises:
            StateUnusable: If another process has it, with that one's id; or if it cannot be made.
        """
        path = directory / "lock"
        try:
            # What tasks are given in their environment is nobody else's to read.
            directory.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            directory.chmod(_OWNER_ONLY)
            file = path.open("a+", encoding="ascii")
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

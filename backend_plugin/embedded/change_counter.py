"""A file with the number of the last durable change, to detect lost changes.

SQLite reads a damaged or truncated write-ahead log up to the damage, without an error.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from backend_plugin.embedded.state_lock import USABLE, StateUnusable, open_own

_DIGITS: Final = 20


class ChangeCounter:
    """The change counter of one state directory, stored in a file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.fdopen(open_own(path), "rb+", buffering=0)
        except OSError as error:
            raise StateUnusable(f"{path}: {error.strerror or error}; {USABLE}") from error

    def read(self) -> int:
        """Return the stored number; 0 if the file does not contain a number."""
        said = os.pread(self._file.fileno(), _DIGITS, 0)
        return int(said) if said.isdigit() else 0

    def write(self, number: int) -> None:
        """Store the number. Ignore a write error: its only effect is that a later loss is not detected."""
        with suppress(OSError):
            os.pwrite(self._file.fileno(), b"%020d" % number, 0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

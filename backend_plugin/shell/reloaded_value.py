"""A value that is read from files, and read again when they change."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from backend_plugin.core.errors import BackendError
from backend_plugin.shell import bounded_read

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
# Minimum time between two checks of the files, so that not every call accesses the disk.
_FRESH_SECONDS: Final = 1.0


class UnusableCredentials(BackendError):
    """Credentials cannot be used: a file is missing, invalid or not accessible."""


class ReloadedValue(Generic[T]):
    """A value that is read from files, and read again when they change."""

    def __init__(self, files: Sequence[Path], read: Callable[[], T]) -> None:
        self._files, self._read = files, read
        self._state = self._read_file_states()
        self.value = read()
        self._last_check = time.monotonic()

    @property
    def current(self) -> T:
        """The value, read again if the files have changed."""
        self.reload_if_changed()
        return self.value

    def reload_if_changed(self) -> bool:
        """Read the files again if they have changed, and return True if this call has replaced `value`.

        The files are checked once per second at most. If they cannot be read, the value does not change.
        """
        now = time.monotonic()
        if now - self._last_check < _FRESH_SECONDS:
            return False
        self._last_check = now
        state = self._read_file_states()
        if state == self._state:
            return False
        try:
            self.value = self._read()
        except UnusableCredentials as error:
            _LOG.error("the previous content stays in use: %s", error)
            self._state = state
            return False
        except (MemoryError, OSError, RuntimeError, TypeError, ValueError):
            # gRPC calls this, and an error would stop the server. The files are read again a second later.
            _LOG.exception(
                "cannot read %s; the previous content stays in use", ", ".join(map(str, self._files))
            )
            return False
        self._state = state
        _LOG.info("reloaded: %s", ", ".join(map(str, self._files)))
        return True

    def _read_file_states(self) -> Sequence[tuple[int, int, int] | None]:
        return [bounded_read.read_file_state(file) for file in self._files]

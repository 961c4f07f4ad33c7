"""Sends orders to a shim, retries orders that cannot be sent, and kills a shim whose pod does not end."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.shim import layout

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 1.0
"""Seconds before an order is sent again after an error, such as a full pipe or too many open files."""


class ShimCommands:
    """Sends orders to the shim of one pod.

    Args:
        directory: The directory of the pod.
        patience: Seconds that the pod may take to end after its grace period.
        kill: Kills the shim.
    """

    def __init__(self, directory: PodDirectory, patience: float, kill: Callable[[], None]) -> None:
        self._directory = directory
        self._patience = patience
        self._kill = kill
        self._untold: dict[str, str] = {}
        """The last value of each unsent order; it replaces earlier values."""
        self._again: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_closed = False

    def send(self, word: str, value: str = "") -> None:
        """Send an order as soon as possible. Ignored after `close`."""
        if not self._is_closed:
            self._untold.pop(word, None)
            self._untold[word] = value
            self._send_pending()

    def terminate(self, grace: float) -> None:
        """End the pod within `grace` seconds."""
        self.send(layout.TERMINATE, str(grace))
        self._check_after(grace + self._patience)

    def kill(self) -> None:
        """End the pod immediately, as if its node had failed."""
        self.send(layout.LOSE)
        self._check_after(self._patience)

    def close(self) -> None:
        """Drop unsent orders and timers, because the pod has ended or was released."""
        self._is_closed = True
        self._untold.clear()
        for each in (self._again, self._deadline):
            if each is not None:
                each.cancel()

    def _send_pending(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        while self._untold:
            word, value = next(iter(self._untold.items()))
            try:
                is_sent = self._directory.send_command(word, value)
            except OSError:
                self._again = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._send_pending)
                return
            del self._untold[word]
            if not is_sent and word in (layout.TERMINATE, layout.LOSE):
                # The directory of the pod was removed, so the shim cannot receive orders.
                with contextlib.suppress(OSError):  # `_check_shim` tries again after the grace period.
                    self._kill()

    def _check_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._is_closed or (self._deadline is not None and self._deadline.when() <= at):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = loop.call_at(at, self._check_shim)

    def _check_shim(self) -> None:
        """Kill the shim, because its pod has not ended in time."""
        self._deadline = None
        _LOG.warning("the shim of %s does not respond; killing it", self._directory.path)
        try:
            self._kill()
        except OSError as error:  # Too many open files.
            _LOG.warning("%s: %s", self._directory.path, error)
        self._check_after(self._patience)

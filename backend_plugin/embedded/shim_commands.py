"""Sends orders to a shim, repeats those that cannot be sent, and kills a shim that does not read them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.shim import layout

_LOG = logging.getLogger(__name__)
_AGAIN: Final = 1.0
"""Seconds before an order is sent again after an error, such as a full pipe or too many open files."""


class ShimCommands:
    """The orders to the shim of one pod.

    Args:
        directory: The directory of the pod.
        patience: Seconds in which a shim must read an order, and in which it must end after SIGKILL.
        kill: Kills the shim.
        abandon: Called if the shim still runs after it was killed.
    """

    def __init__(
        self,
        directory: PodDirectory,
        patience: float,
        *,
        kill: Callable[[], None],
        abandon: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._patience = patience
        self._kill = kill
        self._abandon = abandon
        self._untold: dict[str, str] = {}
        """The last value of each unsent order; it replaces earlier values."""
        self._again: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_killed = False
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
        """End the pod immediately, because its node has failed."""
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
                is_told = self._directory.send_command(word, value)
            except OSError:
                self._again = asyncio.get_running_loop().call_later(_AGAIN, self._send_pending)
                return
            del self._untold[word]
            if not is_told and word in (layout.TERMINATE, layout.LOSE):
                # The directory of the pod was removed, so the shim cannot receive orders.
                with contextlib.suppress(OSError):  # `_look` tries again after the grace period.
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
        """Kill or abandon the shim if the pod has not ended in time."""
        self._deadline = None
        if self._is_killed:
            self._abandon()
            return
        try:
            self._escalate()
        except OSError as error:  # Too many open files: check again later.
            _LOG.warning("%s: %s", self._directory.path, error)
        self._check_after(self._patience)

    def _escalate(self) -> None:
        if self._untold or self._directory.has_unread_commands():
            _LOG.warning("the shim of %s does not respond; killing it", self._directory.path)
            self._kill()
            self._is_killed = True
        else:
            # The shim has read its orders. A process that waits for a disk or a GPU cannot be killed faster.
            # If the shim was stopped after it read them, the next check detects it.
            self.send(layout.TERMINATE, "0")

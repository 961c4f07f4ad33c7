"""What a shim is told, until it has heard it; one that hears nothing any more is killed.

Lives here: orders that this machine refuses for now, and how long a pod's end is waited for. Does not: how an
order travels and how a shim is found (`pod_directory`), what becomes of the pod (`kubelet`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.shim import layout

_LOG = logging.getLogger(__name__)
_AGAIN: Final = 1.0
"""Seconds until an order is repeated that could not be given: a full pipe, too many open files."""


class PodOrders:
    """The orders of one pod.

    Args:
        directory: The pod's.
        patience: Seconds that a shim may leave an order unread, and that it may take to die.
        kill: Kills the shim.
        abandon: The shim did not even die of that, so it never does anything any more.
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
        """Of each word the last value: an older one means nothing any more."""
        self._again: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_killed = False
        self._is_closed = False

    def give(self, word: str, value: str = "") -> None:
        """Tell the shim, as soon as that can be done; nothing happens after the pod's end."""
        if not self._is_closed:
            self._untold.pop(word, None)
            self._untold[word] = value
            self._tell()

    def terminate(self, grace: float) -> None:
        """Have the pod end within so many seconds."""
        self.give(layout.TERMINATE, str(grace))
        self._look_in(grace + self._patience)

    def lose(self) -> None:
        """Have the pod end at once, as its node is lost."""
        self.give(layout.LOSE)
        self._look_in(self._patience)

    def close(self) -> None:
        """The pod has ended, or is somebody else's from now on."""
        self._is_closed = True
        self._untold.clear()
        for each in (self._again, self._deadline):
            if each is not None:
                each.cancel()

    def _tell(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        while self._untold:
            word, value = next(iter(self._untold.items()))
            try:
                is_told = self._directory.order(word, value)
            except OSError:
                self._again = asyncio.get_running_loop().call_later(_AGAIN, self._tell)
                return
            del self._untold[word]
            if not is_told and word in (layout.TERMINATE, layout.LOSE):
                # Somebody has removed the pod's directory: its shim cannot be told anything.
                with contextlib.suppress(OSError):  # It is looked for again when it should have ended.
                    self._kill()

    def _look_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._is_closed or (self._deadline is not None and self._deadline.when() <= at):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = loop.call_at(at, self._look)

    def _look(self) -> None:
        """It should have ended by now."""
        self._deadline = None
        if self._is_killed:
            self._abandon()
            return
        try:
            self._insist()
        except OSError as error:  # Too many open files: it is looked at again.
            _LOG.warning("%s: %s", self._directory.path, error)
        self._look_in(self._patience)

    def _insist(self) -> None:
        if self._untold or self._directory.has_unread_orders():
            _LOG.warning("the shim of %s hears nothing, and is killed", self._directory.path)
            self._kill()
            self._is_killed = True
        else:
            # It is at work: a process that waits for a disk or a GPU cannot be killed any sooner. Or it has
            # been stopped only since it was told, which the next look tells.
            self.give(layout.TERMINATE, "0")

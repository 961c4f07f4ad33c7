"""Things to be done behind the calls, each until it is done.

Lives here: asking again after passing trouble, once at a time for a key. Does not: what is asked.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import Refused
from backend_plugin.shell.cluster import Unavailable
from backend_plugin.shell.logs import about
from backend_plugin.shell.metrics import Metrics

log = logging.getLogger(__name__)

Order: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

Key: TypeAlias = tuple[object, ...]
"""What is asked in one word, then of what."""

FIRST_PAUSE: Final = 0.2
"""Seconds before an order is repeated; then twice as many each time, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 30.0


class Orders:
    """The orders of one server."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._interrupted: dict[Key, tuple[Order, Mapping[str, object]]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def count(self, what: str) -> int:
        """How many orders of one kind are under way; may be asked from another thread."""
        return sum(1 for key in list(self._tasks) if key[0] == what)

    def give(self, key: Key, order: Order, whose: Mapping[str, object]) -> asyncio.Task[None]:
        """Begin, unless the order of that key is under way already; whatever it logs says whose it is."""
        task = self._tasks.get(key)
        if task is None:
            with about(**whose):
                task = self._tasks[key] = asyncio.create_task(self._insist(key, order))
            task.add_done_callback(lambda done: self._done(key, done, order, whose))
        return task

    async def settle(self, seconds: float) -> None:
        """Wait for those under way, so long at most, and give up the others."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        for task in [*self._tasks.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.sleep(0)  # Until it is known of each how it ended.

    async def finish(self, what: str, seconds: float) -> None:
        """The same where the end of a loop may have cancelled them: those of one kind are begun once more."""
        await self.settle(0)
        for key, (order, whose) in [*self._interrupted.items()]:
            if key[0] == what:
                self.give(key, order, whose)
        await self.settle(seconds)

    async def _insist(self, key: Key, order: Order) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await order()
            except Unavailable as trouble:
                self.metrics.cluster_errors.add(str(key[0]), "Unavailable")
                log.warning("is asked again in %.1f s: %s", pause, trouble)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except Refused as refused:
                self.metrics.cluster_errors.add(str(key[0]), refused.reason)
                log.error("the cluster refuses for good (%d %s): %s", refused.code, refused.reason, refused)  # noqa: TRY400 - a traceback would say no more.
                return
            else:
                return

    def _done(self, key: Key, task: asyncio.Task[None], order: Order, whose: Mapping[str, object]) -> None:
        self._tasks.pop(key, None)
        if task.cancelled():
            self._interrupted[key] = order, whose
        elif (error := task.exception()) is not None:
            log.error("a defect of ours ended an order", exc_info=error)

"""Two queues: `WorkQueue` processes one key at a time, with retries; `KeyedTasks` runs coroutines by key."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeAlias

from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.store import Clock

_FIRST_DELAY: Final = 0.005
_LONGEST_DELAY: Final = 60.0


class Retry:
    """The type of `FAILED`, which a `KeyProcessor` returns to process its key again after a delay."""


FAILED: Final = Retry()
KeyProcessor: TypeAlias = Callable[[Key], "datetime | Retry | None"]
"""A function that processes a key. It returns the time at which to process the key again,
`FAILED` for a retry after a delay, or None if no further call is needed."""


class WorkQueue:
    """Calls `process` on the event loop for every added key, one key at a time."""

    def __init__(self, process: KeyProcessor, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._due: dict[Key, None] = {}
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._armed: asyncio.Handle | None = None
        self._closed = False

    def add(self, key: Key) -> None:
        """Queue `key` if it is not queued."""
        if self._closed:
            return
        self._due[key] = None
        if self._armed is None:
            self._armed = self._loop.call_soon(self._process_next)

    def close(self) -> None:
        """Drop all keys and timers."""
        self._closed = True
        self._due.clear()
        for key in tuple(self._timers):
            self._cancel_timer(key)

    def _process_next(self) -> None:
        self._armed = None
        if not self._due:
            return
        key = next(iter(self._due))
        del self._due[key]
        again: datetime | Retry | None = FAILED
        try:
            again = self._process(key)
        finally:
            # Continue with the other keys after an exception, which the loop reports.
            self._finish_key(key, again)
            if self._due and self._armed is None:
                self._armed = self._loop.call_soon(self._process_next)

    def _finish_key(self, key: Key, again: datetime | Retry | None) -> None:
        self._cancel_timer(key)
        if isinstance(again, Retry):
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._arm_timer(key, compute_retry_delay(failures))
            return
        self._failures.pop(key, None)
        if again is not None:
            self._arm_timer(key, (again - self._clock()).total_seconds())

    def _arm_timer(self, key: Key, seconds: float) -> None:
        if not self._closed:
            self._timers[key] = self._loop.call_later(max(0.0, seconds), self.add, key)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()


def compute_retry_delay(failures: int) -> float:
    """Return the delay in seconds before a retry. It doubles with each consecutive failure, up to a limit."""
    # Limit the exponent, because the power of a large number of failures is slow to compute.
    return min(_LONGEST_DELAY, _FIRST_DELAY * float(2 ** min(failures - 1, 30)))


class KeyedTasks:
    """Runs the coroutines that are added with the same key one after another."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Task[None]] = {}

    def add(self, key: str, what: Callable[[], Awaitable[None]]) -> None:
        """Call and await `what` after the earlier coroutines of `key` ended, even if one of them failed."""
        task = asyncio.get_running_loop().create_task(_run_after(self._last.get(key), what))
        self._last[key] = task
        task.add_done_callback(lambda ended: self._on_task_done(key, ended))

    async def close(self) -> None:
        """Wait until all coroutines have ended, also those that are added meanwhile; cancel none."""
        while self._last:
            await asyncio.wait(tuple(self._last.values()))

    def _on_task_done(self, key: str, ended: "asyncio.Task[None]") -> None:
        if self._last.get(key) is ended:
            del self._last[key]


async def _run_after(before: "asyncio.Task[None] | None", what: Callable[[], Awaitable[None]]) -> None:
    if before is not None:
        await asyncio.wait((before,))
    await what()

"""What has to be looked at again, and when.

Lives here: a queue of keys, each in it once, one looked at after the other. Does not: what looking means.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.store import Clock

# A timer that is set for longer fires earlier, finds nothing to do, and is set again.
_LONGEST_TIMER: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after a failure: twice as long after each, up to an end."""

    first: float = 0.005
    longest: float = 60.0

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        # Beyond 2 ** 30 every wait is the longest; the power would only grow.
        return min(self.longest, self.first * float(2 ** min(failures - 1, 30)))


class Failed:
    """What looking returns when it has to be tried again."""


FAILED: Final = Failed()
Look: TypeAlias = Callable[[Key], "datetime | Failed | None"]
"""Returns when to look again though nothing has changed, `FAILED`, or None."""


class Work:
    """Calls `look` for every key that was added, on the event loop, never for two at once.

    Between two looks whatever else waits on the loop gets its turn.
    """

    def __init__(self, look: Look, backoff: Backoff, clock: Clock) -> None:
        self._look = look
        self._backoff = backoff
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._due: dict[Key, None] = {}
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._armed: asyncio.Handle | None = None
        self._closed = False

    def add(self, key: Key) -> None:
        """Have `key` looked at soon."""
        if self._closed:
            return
        self._due[key] = None
        if self._armed is None:
            self._armed = self._loop.call_soon(self._next)

    def close(self) -> None:
        """Look at nothing any more."""
        self._closed = True
        self._due.clear()
        for key in tuple(self._timers):
            self._disarm(key)

    def _next(self) -> None:
        self._armed = None
        if not self._due:
            return
        key = next(iter(self._due))
        del self._due[key]
        again: datetime | Failed | None = FAILED
        try:
            again = self._look(key)
        finally:
            # Also after a mistake of ours, which the loop reports, the others are looked at.
            self._settle(key, again)
            if self._due and self._armed is None:
                self._armed = self._loop.call_soon(self._next)

    def _settle(self, key: Key, again: datetime | Failed | None) -> None:
        self._disarm(key)
        if isinstance(again, Failed):
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._arm(key, self._backoff.after(failures))
            return
        self._failures.pop(key, None)
        if again is not None:
            self._arm(key, (again - self._clock()).total_seconds())

    def _arm(self, key: Key, seconds: float) -> None:
        if not self._closed:
            seconds = max(0.0, min(seconds, _LONGEST_TIMER))
            self._timers[key] = self._loop.call_later(seconds, self._ring, key)

    def _ring(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    def _disarm(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

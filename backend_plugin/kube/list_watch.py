"""Decides the next step of a reflector: list, watch or pause. Time and random numbers are arguments.

Lists are requested without a `resourceVersion`. The API server then returns the current state, so a list
after 410 is never older than the cache, and an object that it omits was deleted. Version ``0`` would be
cheaper, but an API server may answer it from a stale cache; and a reflector rarely lists.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_LONGEST_ASKED: Final = 60.0
"""The limit in seconds for `Retry-After`: a proxy may send hours, although the API server is back in minutes.
"""
_MAX_FAILURES: Final = 3
"""The number of failed watches in a row after which the objects are listed again: the watch may always fail
at the same change, which a list skips."""
_WATCH: Final = (300.0, 600.0)
"""The bounds in seconds of `timeoutSeconds` of a watch. A random value keeps watches from ending together.
"""
_RESYNC: Final = (3_600.0, 7_200.0)
"""The shortest and longest time in seconds between two periodic lists, which find changes that were lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListStep:
    """The step in which the reflector requests one page of a list from the API server."""

    rest: str
    """The `continue` token. Empty for a new list, which discards the pages of an unfinished one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStep:
    """The step in which the reflector watches the changes after `version`."""

    version: str
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStep:
    """The step in which the reflector waits for `seconds`."""

    seconds: float


Step: TypeAlias = ListStep | WatchStep | PauseStep


@dataclass(slots=True, kw_only=True)
class ListWatch:
    """The state machine of one reflector. The reflector reports the result of each step."""

    chance: Callable[[], float]
    """Returns a random number from 0 to 1."""
    _rest: str = field(default="", init=False)
    _version: str = field(default="", init=False)
    _pause: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)
    _resync: float = field(default=0.0, init=False)

    def decide_next_step(self, now: float) -> Step:
        """Return the step that the reflector must take now: list, watch or pause."""
        if self._pause:
            seconds, self._pause = self._pause, 0.0
            return PauseStep(seconds=seconds)
        if not self._version or now >= self._resync:
            return ListStep(rest=self._rest)
        return WatchStep(version=self._version, seconds=int(self._choose_between(_WATCH)))

    def on_page(self, rest: str) -> None:
        """Record the arrival of a page that is not the last; `rest` is the `continue` token for the next."""
        self._rest, self._failures = rest, 0

    def on_list_end(self, version: str, now: float) -> None:
        """Record that the last page of a list has arrived; `version` is the `resourceVersion` of the list."""
        self._rest, self._version, self._failures = "", version, 0
        self._resync = now + self._choose_between(_RESYNC)

    def on_progress(self, version: str) -> None:
        """Store the `resourceVersion` of a watch event or bookmark; the next watch starts from it."""
        if version:
            self._version, self._failures = version, 0

    def on_watch_end(self, seconds: float) -> None:
        """Record that a watch ended without an error after `seconds`; a watch of under 1 s causes a pause."""
        if seconds < 1:  # A server that ends each watch immediately needs a pause.
            self.on_failure()

    def on_expired(self) -> None:
        """Record a 410 response: the requested version or `continue` token is too old."""
        self._reset_list()
        self._pause = self.chance()  # All watches of a restored server expire together.

    def on_failure(self, at_least: float = 0.0) -> None:
        """Record a transient error or a missing response.

        After a pause, the next step repeats the request for the page or the watch. After `_MAX_FAILURES`
        failed watches in a row, it starts a new list instead. The pause lasts at least `at_least` or
        `_LONGEST_ASKED` seconds, whichever is shorter.
        """
        self._failures += 1
        if self._failures >= _MAX_FAILURES and not self._rest:
            self._version = ""
        doubled = _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
        backoff = min(doubled, _LONGEST_PAUSE) * (0.5 + self.chance() / 2)
        self._pause = max(min(at_least, _LONGEST_ASKED), backoff)

    def on_permanent_error(self, seconds: float) -> None:
        """Record an error that only an admin can resolve, such as a forbidden list; pause for `seconds`."""
        self._reset_list()
        self._pause = seconds * (0.75 + self.chance() / 2)

    def _reset_list(self) -> None:
        self._rest, self._version, self._failures = "", "", 0

    def _choose_between(self, bounds: tuple[float, float]) -> float:
        return bounds[0] + (bounds[1] - bounds[0]) * self.chance()

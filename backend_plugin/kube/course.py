"""PURE: what a reflector does next. List or watch, from where, after which pause.

Lives here: the rules of `resourceVersion`, `continue` and 410, and how often trouble is asked again. Does
not: asking. Time and chance are handed in.

A list is asked for without a `resourceVersion`: it says what is true now, so a list after 410 never goes back
behind what was seen, and what it leaves out is gone. ``0`` would be cheaper for the API server, but may be
answered out of a cache that lags behind; and lists are rare here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_LONGEST_ASKED: Final = 60.0
"""Seconds: the page of a proxy may ask for hours, and the API server be back in minutes."""
_MOST_FAILURES: Final = 3
"""Watches in a row that came to nothing, after which a list may help: what broke them is behind it then."""
_WATCH: Final = (300.0, 600.0)
"""Seconds after which the API server is to end a watch: spread, so that not all begin anew at once."""
_RESYNC: Final = (3_600.0, 7_200.0)
"""Seconds after which there is a list though nothing is amiss: whatever was lost on the way is found."""
_LARGEST_PAGE: Final = 4_000
"""Objects; of pods that is 40 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """Ask for a page."""

    limit: int
    rest: str
    """What to continue with; empty: a new list, what was found for another one is not part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Ask for what has changed since."""

    version: str
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Wait."""

    seconds: float


Step: TypeAlias = List | Watch | Pause


@dataclass(slots=True, kw_only=True)
class Course:
    """Of one reflector; it is told what has come of each step."""

    chance: Callable[[], float]
    """From 0 to 1."""
    page: int
    _limit: int = field(init=False)
    _rest: str = field(default="", init=False)
    _version: str = field(default="", init=False)
    _pause: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)
    _resync: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._limit = self.page

    def step(self, now: float) -> Step:
        """What to do next."""
        if self._pause:
            seconds, self._pause = self._pause, 0.0
            return Pause(seconds=seconds)
        if not self._version or now >= self._resync:
            return List(limit=self._limit, rest=self._rest)
        return Watch(version=self._version, seconds=int(self._between(_WATCH)))

    def paged(self, rest: str) -> None:
        """A page has come, and it is not the last."""
        self._rest, self._failures = rest, 0

    def listed(self, version: str, now: float) -> None:
        """The last page has come, of a list as of that version."""
        self._rest, self._version, self._failures, self._limit = "", version, 0, self.page
        self._resync = now + self._between(_RESYNC)

    def seen(self, version: str) -> None:
        """The watch has come so far, by a change or a bookmark."""
        if version:
            self._version, self._failures = version, 0

    def ended(self, seconds: float) -> None:
        """The watch is over, as agreed; it has taken so long."""
        if seconds < 1:  # Not as agreed: who ends each at once is not to be asked without a pause.
            self.failed()

    def expired(self) -> None:
        """410: what was asked from is compacted, before a watch, in it, or in the middle of a list."""
        # A list that was too slow for the compaction gets on in larger pages.
        self._limit = min(_LARGEST_PAGE, 2 * self._limit) if self._rest else self._limit
        self._anew()
        self._pause = self.chance()  # All watches of a server that was restored expire at once.

    def failed(self, at_least: float = 0.0) -> None:
        """No answer, or one that may pass; the page or the watch is asked for again from where it was."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES and not self._rest:
            self._version = ""
        doubled = _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
        ours = min(doubled, _LONGEST_PAUSE) * (0.5 + self.chance() / 2)
        self._pause = max(min(at_least, _LONGEST_ASKED), ours)

    def refused(self, seconds: float) -> None:
        """It is not there, or not permitted: a person may mend that, at some time."""
        self._anew()
        self._pause = seconds * (0.75 + self.chance() / 2)

    def _anew(self) -> None:
        self._rest, self._version, self._failures = "", "", 0

    def _between(self, bounds: tuple[float, float]) -> float:
        return bounds[0] + (bounds[1] - bounds[0]) * self.chance()

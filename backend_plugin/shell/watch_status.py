"""The status of the watches on a cluster: watches write it, metrics and error messages read it."""

import enum
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Final, TypeAlias

_Place: TypeAlias = tuple[str, str]
"""The kind of the watched objects, and their namespace; an empty string for all namespaces."""
_MOST_FAILURES: Final = 3
"""The maximum number of failures in one message, because gRPC limits the size of an error's details."""


class WatchState(enum.Enum):
    """The state of the watch on one kind in one namespace."""

    SYNCING = "syncing"
    """The first list of objects has not been received yet."""
    SYNCED = "synced"
    STALE = "stale"
    """The watch is interrupted; the cached objects may be outdated."""
    NOT_SERVED = "not_served"
    """The cluster does not serve this kind."""
    FORBIDDEN = "forbidden"
    """The server has no permission to watch this kind."""


class WatchStatus:
    """The state of the watch on each kind and namespace of a cluster, and when it last received data."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.record_failure: Callable[[str], None] = lambda _: None
        """Called with a short reason for each watch failure."""
        self._clock = clock
        self._states: dict[_Place, WatchState] = {}
        self._received: dict[_Place, float] = {}
        """The time at which each watch last received data, or at which the watch was added."""
        self._failures: dict[_Place, str] = {}

    def set_state(self, kind: str, namespace: str, state: WatchState, failure: str = "") -> None:
        """Set the state of the watch on one kind in one namespace; `failure` is the reason if it failed."""
        self._states[kind, namespace] = state
        self._failures[kind, namespace] = failure
        self._received.setdefault((kind, namespace), self._clock())

    def receive(self, kind: str, namespace: str) -> None:
        """Record that the watch on one kind has received data now: a list, a change or a bookmark."""
        self._received[kind, namespace] = self._clock()

    def is_any_synced(self, kinds: Container[str]) -> bool:
        """True if the watch on one of these kinds is in the state `SYNCED`."""
        return any(kind in kinds and state is WatchState.SYNCED for (kind, _), state in self._states.items())

    def describe_failures(self) -> str:
        """Return the reasons of all current failures with the affected kinds; empty without failures."""
        affected: dict[str, list[str]] = {}
        for (kind, namespace), failure in self._failures.items():
            if failure:
                affected.setdefault(failure, []).append(f"{kind} in {namespace}" if namespace else kind)
        texts = [f"cannot list {', '.join(places)}: {failure}" for failure, places in affected.items()]
        hidden = len(texts) - _MOST_FAILURES
        return "; ".join([*texts[:_MOST_FAILURES], *([f"{hidden} more failures"] if hidden > 0 else ())])

    def count_watches(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of watches by kind and state; safe to call from another thread."""
        return Counter((kind, state.value) for (kind, _), state in list(self._states.items()))

    def ages(self) -> Mapping[tuple[str, ...], float]:
        """Return the seconds since data was last received, by kind; safe to call from another thread.

        If a kind is watched in several namespaces, the longest time is returned. Watches in the state
        `NOT_SERVED` or `FORBIDDEN` are left out.
        """
        now, ages = self._clock(), dict[tuple[str, ...], float]()
        for (kind, namespace), state in list(self._states.items()):
            if state not in (WatchState.NOT_SERVED, WatchState.FORBIDDEN):
                ages[(kind,)] = max(ages.get((kind,), 0.0), now - self._received[kind, namespace])
        return ages

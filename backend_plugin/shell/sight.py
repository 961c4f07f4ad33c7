"""The status of the watches on a cluster: watches write it, and metrics read it."""

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

_Place: TypeAlias = tuple[str, str]
"""A kind, and a namespace or an empty string for all namespaces."""


class State(enum.Enum):
    """The state of the watch on one kind in one namespace."""

    WAITING = "waiting"
    """The first list has not been received."""
    IN_SIGHT = "in_sight"
    OUT_OF_SIGHT = "out_of_sight"
    """The watch is interrupted; the cached objects may be outdated."""
    ABSENT = "absent"
    """The cluster does not serve this kind."""
    REFUSED = "refused"
    """The server has no permission to watch this kind."""


class Sight:
    """The watch states of one cluster."""

    def __init__(self) -> None:
        self.trouble: Callable[[str], None] = lambda _: None
        """Called with a short reason for each watch failure."""
        self._states: dict[_Place, State] = {}

    def stands(self, kind: str, namespace: str, state: State) -> None:
        """Set the state of the watch on one kind in one namespace."""
        self._states[kind, namespace] = state

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of watches by kind and state; safe to call from another thread."""
        return Counter((kind, state.value) for (kind, _), state in list(self._states.items()))

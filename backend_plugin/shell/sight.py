"""How much of a cluster is in sight at the moment, and what stood in the way.

Lives here: a place for whoever follows a cluster to say it, and for metrics to ask. Does not: following.
"""

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

_Place: TypeAlias = tuple[str, str]
"""A kind, and a namespace or an empty text for all of them."""


class State(enum.Enum):
    """How one kind in one place stands."""

    WAITING = "waiting"
    """It has not been seen yet."""
    IN_SIGHT = "in_sight"
    OUT_OF_SIGHT = "out_of_sight"
    """What was seen before stays, and may not be so any more."""
    ABSENT = "absent"
    """The cluster has no such kind."""
    REFUSED = "refused"
    """It may not be seen."""


class Sight:
    """Of one cluster."""

    def __init__(self) -> None:
        self.trouble: Callable[[str], None] = lambda _: None
        """Is told in a word of each thing that stood in the way."""
        self._states: dict[_Place, State] = {}

    def stands(self, kind: str, namespace: str, state: State) -> None:
        """So it is with one kind in one place."""
        self._states[kind, namespace] = state

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """How many places there are by kind and state; may be asked from another thread."""
        return Counter((kind, state.value) for (kind, _), state in list(self._states.items()))

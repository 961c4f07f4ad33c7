"""Who waits in which queue, of all that a cluster has: so that each of ours knows how many are before it.

Lives here: a few words of everybody who waits. Does not: whether somebody waits, which `scheduling` knows.
"""

from bisect import bisect_left, insort
from typing import Final, NamedTuple, TypeAlias

from msgspec import structs

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling import table

_Queue: TypeAlias = tuple[str, str]
"""Its namespace and its name."""
# Of a longer queue nobody counts: a few megabytes of memory, and more than anybody waits for.
_LONGEST: Final = 10_000


class _Turn(NamedTuple):
    """Whose turn is sooner is less."""

    priority: int
    """Below zero: the higher comes first."""
    created: float
    uid: str


class Queues:
    """Of one cluster."""

    def __init__(self) -> None:
        self._turns: dict[_Queue, list[_Turn]] = {}
        """In order, so that a place in it is found without going through all: every poll asks for one."""
        self._where: dict[str, tuple[_Queue, _Turn]] = {}
        """Each who waits, by its uid."""

    def clear(self) -> None:
        """All are told anew."""
        self._turns.clear()
        self._where.clear()

    def put(self, namespace: str, group: PodGroup) -> None:
        """It waits, or waits no longer."""
        self.drop(group.uid)
        queue = (namespace, group.queue)
        turns = self._turns.get(queue, [])
        if table.is_queued(group) and len(turns) < _LONGEST:
            self._turns[queue] = turns
            turn = _turn(group)
            insort(turns, turn)
            self._where[group.uid] = queue, turn

    def drop(self, uid: str | None) -> None:
        """It is gone."""
        found = self._where.pop(uid or "", None)
        if found is not None:
            queue, turn = found
            turns = self._turns[queue]
            del turns[bisect_left(turns, turn)]
            if not turns:
                del self._turns[queue]

    def placed(self, group: PodGroup) -> PodGroup:
        """The same, with how many come before it where it waits in a queue that somebody counts."""
        found = self._where.get(group.uid)
        if found is None:
            return group
        queue, turn = found
        turns = self._turns[queue]
        return group if len(turns) >= _LONGEST else structs.replace(group, ahead=bisect_left(turns, turn))


def _turn(group: PodGroup) -> _Turn:
    return _Turn(-group.priority, group.created.timestamp() if group.created else 0.0, group.uid)

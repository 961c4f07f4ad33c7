"""The position of each waiting pod group in its queue: the number of groups that come before it."""

from bisect import bisect_left, insort
from typing import Final, NamedTuple, TypeAlias

from msgspec import structs

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling import registry

_Queue: TypeAlias = tuple[str, str]
"""The namespace and the name of a queue."""
# Bounds the memory to a few megabytes; a position in a longer queue is of no use to a user.
_LONGEST: Final = 10_000


class _SortKey(NamedTuple):
    """A sort key: the group that is admitted first compares as smallest."""

    priority: int
    """The negated priority, so that a higher priority sorts first."""
    created: float
    uid: str


class QueuePositions:
    """The waiting pod groups of one cluster, by queue and in the order of admission."""

    def __init__(self) -> None:
        self._turns: dict[_Queue, list[_SortKey]] = {}
        """The sort keys of the groups of each queue, in order. Bisection finds the position of a group."""
        self._where: dict[str, tuple[_Queue, _SortKey]] = {}
        """The queue and sort key of each waiting group, by its uid."""

    def clear(self) -> None:
        """Remove all pod groups, before a new list adds them again."""
        self._turns.clear()
        self._where.clear()

    def put_group(self, namespace: str, group: PodGroup) -> None:
        """Add or update a group; remove it if it no longer waits."""
        self.drop_group(group.uid)
        queue = (namespace, group.queue)
        turns = self._turns.get(queue, [])
        if registry.has_queue_position(group) and len(turns) < _LONGEST:
            self._turns[queue] = turns
            created = group.created.timestamp() if group.created else 0.0
            turn = _SortKey(-group.priority, created, group.uid)
            insort(turns, turn)
            self._where[group.uid] = queue, turn

    def drop_group(self, uid: str | None) -> None:
        """Remove a deleted group."""
        position = self._where.pop(uid or "", None)
        if position is not None:
            queue, turn = position
            turns = self._turns[queue]
            del turns[bisect_left(turns, turn)]
            if not turns:
                del self._turns[queue]

    def with_position(self, group: PodGroup) -> PodGroup:
        """Return a copy of `group` with the number of groups before it in its queue as the field `ahead`.

        Return `group` unchanged if it does not wait, or if `_LONGEST` or more groups wait in its queue.
        """
        position = self._where.get(group.uid)
        if position is None:
            return group
        queue, turn = position
        turns = self._turns[queue]
        return group if len(turns) >= _LONGEST else structs.replace(group, ahead=bisect_left(turns, turn))

"""What a gang scheduler says of jobs that wait for it, and what it does in silence: recognised.

Lives here: the shape that every module of `schedulers` fills in with its own words. Does not: any word; nor
what is told of it, which is `core.waiting`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.observed import Observed, PodGroup
from backend_plugin.core.quantity import NotAQuantity, Quantity, in_bytes, parse, total
from backend_plugin.core.waits import Note, Said, Wait


def not_said(_: str) -> Said | None:
    """No text is one of its words."""
    return None


def no_group(_: PodGroup) -> Wait | None:
    """No object says anything."""
    return None


def not_queued(_: PodGroup) -> bool:
    """It has no queue in which anybody has a place."""
    return False


def no_waits(_: Observed) -> Iterable[Wait]:
    """Its events say nothing of waiting."""
    return ()


def no_notes(_: Observed) -> Iterable[Note]:
    """It does nothing in silence."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Of one scheduler. Whatever is not its own is left to the next: None, or nothing."""

    api: str = ""
    """The API group of its groups."""
    message: Callable[[str], Said | None] = not_said
    """Of a pod that has no place, or of an event about one."""
    group: Callable[[PodGroup], Wait | None] = no_group
    events: Callable[[Observed], Iterable[Wait]] = no_waits
    notes: Callable[[Observed], Iterable[Note]] = no_notes
    places: re.Pattern[str] | None = None
    """The names of the pods with which it holds places."""
    queued: Callable[[PodGroup], bool] = not_queued
    """Whether one of its groups stands in a queue, in which others are before it."""
    controlled: bool = False
    """Its groups are written by a controller: they do not tell that whoever places the pods runs."""
    groups: re.Pattern[str] | None = None
    """The names of its groups, with that of the job as ``job``, where they are called otherwise."""


_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
# More than any cluster has: somebody's mistake, and no number that people read.
_MOST: Final = 2**63 * 10**9


def amount(resource: str, said: str) -> Quantity | None:
    """An amount as a scheduler wrote it, as people write it; None where it is none."""
    found = bounded(said)
    if found is None:
        return None
    return in_bytes(found) if resource.startswith(_BYTES) else total([found])


def bounded(said: str) -> Quantity | None:
    """An amount that somebody wrote; None where it is none, or more than there can be."""
    try:
        found = parse(said)
    except NotAQuantity:
        return None
    return found if abs(found.nano) <= _MOST else None

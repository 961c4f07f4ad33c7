"""Who runs on which processors: programs that are asked on the ones, who asks them on the others.

Nearer to a cluster, whose API server has a machine of its own; memory and the last cache they share.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """Processors for those who are asked, and for those who ask."""

    asked: set[int]
    asking: set[int]


def shared() -> Split:
    """All for both."""
    known = os.sched_getaffinity(0)
    return Split(known, known)


def apart() -> Split:
    """Half for each, by their numbers, which may be threads of the same cores; a single one is shared."""
    known = sorted(os.sched_getaffinity(0))
    middle = len(known) // 2
    return Split(set(known[:middle] or known), set(known[middle:]))


@contextmanager
def running_on(processors: set[int]) -> Iterator[None]:
    """What this thread starts inside runs on these and no others, also afterwards."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

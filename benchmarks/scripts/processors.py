"""Who runs on which processors: programs that are asked on the ones, who asks them on the others.

As on machines of their own, where an API server takes nothing from who is measured, and loses nothing to him.
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
    """Half for each; where there is only one, it is shared."""
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

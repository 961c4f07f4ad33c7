"""Assign processors to servers and clients, for measurements with a real API server.

Separate processors resemble a cluster, in which the API server has its own machine. Memory and the last-level
cache are still shared.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """The processors of the API server, and those of its clients."""

    of_server: set[int]
    of_clients: set[int]


def share_processors() -> Split:
    """Return all processors for both sides."""
    known = os.sched_getaffinity(0)
    return Split(known, known)


def split_processors() -> Split:
    """Return half of the processors for each side, by number; both share a single one."""
    known = sorted(os.sched_getaffinity(0))
    middle = len(known) // 2
    return Split(set(known[:middle] or known), set(known[middle:]))


@contextmanager
def run_on(processors: set[int]) -> Iterator[None]:
    """Restrict this thread, and processes that it starts in the context, to these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

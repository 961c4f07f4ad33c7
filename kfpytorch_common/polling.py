"""Tests which file descriptors have data to read, without the limit of `select.select` at 1023."""

import select
from collections.abc import Iterable
from typing import Final

_DAY: Final = 86_400.0
"""The longest wait in seconds; `poll` does not accept more than 24 days."""


def poll_readable(fds: Iterable[int], timeout: float) -> list[int]:
    """Wait for a readable descriptor, not longer than `timeout` seconds or one day; return the readable ones.

    A descriptor is also readable at its end and in error, so that a read reports this.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(min(max(timeout, 0.0), _DAY) * 1000)]

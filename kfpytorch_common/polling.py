"""Tests which file descriptors have data to read, without the limit of `select.select` at 1023."""

import select
from collections.abc import Iterable


def poll_readable(fds: Iterable[int], timeout: float) -> list[int]:
    """Wait at most `timeout` seconds until one of the descriptors is readable; return the readable ones."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout * 1000)]

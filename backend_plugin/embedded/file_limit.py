"""The limit on open files of this process. Each pod needs one file descriptor."""

import errno
import os
import resource
from contextlib import suppress
from typing import Final

_LIMIT_IF_INFINITE: Final = 1 << 20
"""The limit to set if the hard limit is infinite: macOS rejects an infinite soft limit."""
_RESERVE: Final = 64
"""Descriptors that are reserved for client connections and for the server's own files."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return the previous soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_IF_INFINITE if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # The system may have a lower limit that it does not report.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def require_descriptors() -> None:
    """Raise OSError if one more pod would leave too few descriptors for clients."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The system assigns the lowest free number, so `fd` shows how many descriptors are in use.
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    if limit != resource.RLIM_INFINITY and fd >= limit - _RESERVE:
        message = f"{os.strerror(errno.EMFILE)}: the limit is {limit} (ulimit -n), and each pod needs one"
        raise OSError(errno.EMFILE, message)

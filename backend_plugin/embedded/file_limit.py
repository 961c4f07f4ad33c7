"""How many files this process may have open: as many as there may be, for each pod takes one of them.

Lives here: the limit of this process. Does not: that of pods, which are started with the one that we had.
"""

import errno
import os
import resource
from typing import Final

_MOST: Final = 1 << 20
"""Where there is no limit at all; macOS refuses to have none."""
_RESERVE: Final = 64
"""Kept for whoever calls the server, and for its own files."""


def lift() -> int:
    """Let this process open as many as its user may allow it; returns the limit that it had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # The system has a limit of its own that it does not tell.
            return soft
    return soft


def require_room() -> None:
    """Raise OSError, in words that help, where one more pod would leave nobody a way to call us."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A new file gets the lowest number that is free.
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    if limit != resource.RLIM_INFINITY and fd >= limit - _RESERVE:
        said = f"{os.strerror(errno.EMFILE)}: the server may have {limit} (ulimit -n), and each pod takes one"
        raise OSError(errno.EMFILE, said)

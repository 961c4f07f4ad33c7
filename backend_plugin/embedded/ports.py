"""Reserves a port of this machine for each job, and raises the limit on open files of the server."""

import os
import resource
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from backend_plugin.embedded.pod_addresses import LOOPBACK

# Below the ephemeral ports of Linux (from 32768) and macOS (from 49152), so that no client connection uses
# them.
_SPAN: Final = range(20_000, 30_000)
# Two clusters on one machine start at different ports.
_STEP: Final = 97


class PortAllocator:
    """Reserves a port of this machine for each job. A job keeps its port until `release_port`."""

    def __init__(self, known: Mapping[str, int], span: Sequence[int] = _SPAN) -> None:
        self._ports = dict(known)
        self._span = span
        self._next = os.getpid() * _STEP % len(span)

    def get_port(self, job: str) -> int:
        """Return the port of the job with this uid. Reserve a free port on the first call.

        Raises:
            OSError: If no port is free.
        """
        port = self._ports.get(job)
        if port is None:
            port = self._ports[job] = self._find_free_port()
        return port

    def release_port(self, job: str) -> None:
        """Release the port of a job."""
        self._ports.pop(job, None)

    def _find_free_port(self) -> int:
        taken = set(self._ports.values())
        for _ in self._span:
            port = self._span[self._next]
            self._next = (self._next + 1) % len(self._span)
            if port not in taken and is_free(port):
                return port
        raise OSError(f"no port from {self._span[0]} to {self._span[-1]} is free")


def is_free(port: int) -> bool:
    """True if no process listens at this port on any address of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # torch listens on all addresses.
            probe.bind(("", port))
        except OSError:
            return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # macOS allows this bind although another process listens on the loopback address.
        return probe.connect_ex((LOOPBACK, port)) != 0


_LIMIT_IF_INFINITE: Final = 1 << 20
"""The soft limit on open files if the hard limit is infinite: macOS rejects an infinite soft limit."""


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: the server keeps a file open for each pod."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_IF_INFINITE if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # The system may have a lower limit that it does not report.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""A port of this machine for every job, so that jobs do not meet."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from backend_plugin.embedded.pod_names import LOOPBACK

# Below what Linux (32768) and macOS (49152) hand out by themselves, so that no passing connection has one.
_SPAN: Final = range(20_000, 30_000)
# Two clusters of one machine begin at different ports.
_STEP: Final = 97


class Ports:
    """Which job has which port; a job keeps its port for as long as it is known here."""

    def __init__(self, known: Mapping[str, int], span: Sequence[int] = _SPAN) -> None:
        self._ports = dict(known)
        self._span = span
        self._next = os.getpid() * _STEP % len(span)

    def of(self, job: str) -> int:
        """The port of the job with that uid: the one that it has, or else a free one.

        Raises:
            OSError: If none is free.
        """
        port = self._ports.get(job)
        if port is None:
            port = self._ports[job] = self._free()
        return port

    def release(self, job: str) -> None:
        """The job needs none any more."""
        self._ports.pop(job, None)

    def _free(self) -> int:
        taken = set(self._ports.values())
        for _ in self._span:
            port = self._span[self._next]
            self._next = (self._next + 1) % len(self._span)
            if port not in taken and is_free(port):
                return port
        raise OSError(f"no port from {self._span[0]} to {self._span[-1]} is free")


def is_free(port: int) -> bool:
    """Whether nobody listens at this port of the machine, on any of its addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # torch listens on all addresses.
            probe.bind(("", port))
        except OSError:
            return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # On macOS an address of its own may be bound beside the one for all.
        return probe.connect_ex((LOOPBACK, port)) != 0

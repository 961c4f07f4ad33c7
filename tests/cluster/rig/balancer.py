"""One address for several servers, as a Service is: each new connection goes to one that listens."""

import contextlib
import itertools
import socket
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from rig.control_plane import HERE

_CHUNK: Final = 1 << 16


class Balancer:
    """A context that serves one port; which servers are behind it may change.

    Args:
        endpoints: The servers.
        listen: Where; by default at any port that is free.
    """

    def __init__(self, endpoints: Sequence[str], listen: tuple[str, int] = (HERE, 0)) -> None:
        self.endpoints = list(endpoints)
        self._turn = itertools.count()
        self._listening = socket.create_server(listen)
        self.endpoint = f"{HERE}:{self._listening.getsockname()[1]}"

    def __enter__(self) -> "Balancer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone would not wake who accepts.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            server = self._connected()
            if server is None:
                caller.close()
                continue
            for ends in ((caller, server), (server, caller)):
                threading.Thread(target=_pump, args=ends, daemon=True).start()

    def _connected(self) -> socket.socket | None:
        """A connection to the next server that takes one."""
        first = next(self._turn)
        for offset in range(len(self.endpoints)):
            host, _, port = self.endpoints[(first + offset) % len(self.endpoints)].rpartition(":")
            with contextlib.suppress(OSError):
                return socket.create_connection((host, int(port)), timeout=5)
        return None


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Whatever comes, until either is closed; then both are."""
    source.settimeout(None)
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def main(host: str, port: str, *endpoints: str) -> None:
    """As a program, for a place apart; until it is ended."""
    with Balancer(endpoints, (host, int(port))):
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

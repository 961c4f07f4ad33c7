"""A TCP load balancer: one address for several servers, as a Service is."""

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
    """A context manager that forwards the connections of one port; `endpoints` may change while it runs.

    Args:
        endpoints: The addresses of the servers.
        listen: The host and port to listen on; by default a free port of the loopback address.
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
        # Closing the socket does not wake the thread that waits in accept().
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
        """Return a connection to the next server that accepts one, or None."""
        first = next(self._turn)
        for offset in range(len(self.endpoints)):
            host, _, port = self.endpoints[(first + offset) % len(self.endpoints)].rpartition(":")
            with contextlib.suppress(OSError):
                return socket.create_connection((host, int(port)), timeout=5)
        return None


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy data until either socket is closed, then close both."""
    source.settimeout(None)
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def main(host: str, port: str, *endpoints: str) -> None:
    """Run a balancer as a program in another namespace, until it is killed."""
    with Balancer(endpoints, (host, int(port))):
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A TCP load balancer: one address for several servers, as a Service is.

``python -m rig.balancer HOST PORT ENDPOINT...`` runs until it is killed.
"""

import contextlib
import itertools
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Final

_CHUNK: Final = 1 << 16


def connect(endpoints: Iterator[str], count: int) -> socket.socket | None:
    """Return a connection to the next of the servers that accepts one, or None."""
    for endpoint in itertools.islice(endpoints, count):
        host, _, port = endpoint.rpartition(":")
        with contextlib.suppress(OSError):
            return socket.create_connection((host, int(port)), timeout=5)
    return None


def pump(source: socket.socket, target: socket.socket) -> None:
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
    """Forward the connections of a port."""
    turn = itertools.cycle(endpoints)
    with socket.create_server((host, int(port))) as listening:
        while True:
            caller, _ = listening.accept()
            server = connect(turn, len(endpoints))
            if server is None:
                caller.close()
                continue
            for ends in ((caller, server), (server, caller)):
                threading.Thread(target=pump, args=ends, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])

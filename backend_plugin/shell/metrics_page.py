"""The HTTP server of the metrics page, with a limit on connections and on their duration.

The metrics themselves are in `metrics`.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from socket import AF_INET6, SHUT_RDWR, socket
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

CONNECTIONS: Final = 16
"""Maximum number of connections; each has a thread, and a Prometheus server opens one."""
SECONDS: Final = 5.0
"""Idle timeout of a connection, and the age at which it may be closed in favour of a new one."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """A server with at most `CONNECTIONS` connections; an old one makes room for a new one."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], app: Callable[..., Any]) -> None:
        """Listen at an address."""
        self._opened: dict[socket, float] = {}
        if ":" in address[0]:
            self.address_family = AF_INET6
        super().__init__(address, _Request)
        self.set_app(app)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a thread if a connection is free; otherwise close the connection."""
        if len(self._opened) < CONNECTIONS or self._has_closed_oldest():
            self._opened[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection after its response."""
        self._opened.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of clients that disconnect or are too slow."""

    def _has_closed_oldest(self) -> bool:
        oldest, since = next(iter([*self._opened.items()]), (None, 0.0))
        if oldest is None:
            return True
        if time.monotonic() - since < SECONDS:
            return False
        self._opened.pop(oldest, None)
        with suppress(OSError):  # The client may have closed the connection.
            oldest.shutdown(SHUT_RDWR)  # The thread of the connection ends after this.
        return True


class _Request(WSGIRequestHandler):
    timeout = SECONDS

    def log_message(self, *_: Any) -> None:
        """Do not log requests; a scrape every few seconds is not of interest."""

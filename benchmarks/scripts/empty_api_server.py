"""A fake API server of an empty cluster with both operators, for measuring an idle connector.

Lists are empty, watches send no events, and other paths return 404.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Final
from urllib.parse import urlsplit

_LISTED: Final = frozenset({"pytorchjobs", "trainjobs", "trainingruntimes", "pods", "events"})
_EMPTY: Final = json.dumps({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}).encode()


@contextmanager
def serve(folder: Path) -> Iterator[Path]:
    """Serve in the background, write a kubeconfig into the folder, and yield its path."""
    ended = Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path.rpartition("/")[2] not in _LISTED:
                self._answer(404, b"404 page not found\n")
            elif "watch=true" not in asked.query:
                self._answer(200, _EMPTY)
            else:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                ended.wait()

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - as in the base class.
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    host, port = server.server_address[:2]
    config = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": f"http://{host!s}:{port}"}}],
        "users": [{"name": "bench", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        ended.set()
        server.shutdown()
        server.server_close()

"""Requests of `Connection` on the wire, and the API server URLs that it accepts."""

import asyncio
import http.server
import threading

import pytest

from backend_plugin.kube.connection import ApiRequest, Connection
from backend_plugin.kube.credentials import ClusterAccess, CredentialsUnusable


class Account:
    """Credentials that do not change."""

    def __init__(self, server):
        self._access = ClusterAccess(server=server)

    async def load(self):
        return self._access

    def forget(self):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    """Record each request and respond with an empty JSON object."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append((self.requestline, dict(self.headers)))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815 - http.server's name.

    def log_message(self, *_):
        """Write no log."""


def send(request, url):
    """Send `request` to a server with the URL `url`; return its port and the received request."""

    async def send(port):
        connection = Connection(Account(url.format(port=port)))
        await connection.open()
        try:
            return await connection.send(request, 5)
        finally:
            await connection.close()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            reply = asyncio.run(send(server.server_port))
        finally:
            server.shutdown()
            thread.join()
    assert (reply.status, reply.body) == (200, b"{}")
    return server.server_port, *server.requests[0]


def test_url_credentials_are_sent_as_basic_authorization():
    _, _, headers = send(ApiRequest(path="/api"), "http://u:p%40w@127.0.0.1:{port}")
    assert headers["Authorization"] == "Basic dTpwQHc="


@pytest.mark.parametrize("server", ["", "127.0.0.1:6443", "localhost:6443", "https://", "ftp://localhost:1"])
async def test_an_invalid_url_is_rejected_when_the_connection_opens(server):
    connection = Connection(Account(server))
    with pytest.raises(CredentialsUnusable, match="write https://HOST:PORT"):
        await connection.open()
    await connection.close()

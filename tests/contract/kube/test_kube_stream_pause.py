"""`ResponseStream.pause` leaves data in the socket, and later delivers all of it."""

import asyncio
import fcntl
import ssl
import struct
import termios
from contextlib import asynccontextmanager

import psutil
import pytest
from certificates import Authority
from kube_world import SetCredentials

from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.connection import ApiRequest, Connection
from backend_plugin.kube.credentials import ClusterAccess

MESSAGE = b"x" * 1_000


class Server:
    """A server of one response, whose chunks the test sends."""

    def __init__(self):
        self.writer = None
        self.done = asyncio.Event()

    async def respond(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.writer = writer
        self.send(b"first")
        await self.done.wait()
        writer.transport.abort()

    def send(self, chunk):
        self.writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))


@pytest.fixture(params=["tls", "plain"])
def tls(request, tmp_path):
    """Return the TLS context of a server, and the file of its authority; None and None without TLS."""
    if request.param == "plain":
        return None, None
    files = Authority().issue_server(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context, str(tmp_path / "ca.crt")


@asynccontextmanager
async def opened(tls):
    """Yield a server and the stream of its response, from which the first chunk has been read."""
    context, authority = tls
    server = Server()
    listening = await asyncio.start_server(server.respond, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    connection = Connection(SetCredentials(ClusterAccess(server=url, ca_file=authority)))
    await connection.open()
    try:
        async with ApiClient(connection, 5).open_stream(ApiRequest(path="/"), 5) as stream:
            assert await anext(stream.pieces) == b"first"
            yield server, stream
    finally:
        server.done.set()
        await connection.close()
        listening.close()


def count_unread(server):
    """Return the number of received bytes that the client has not read from its socket."""
    port = server.writer.get_extra_info("peername")[1]
    (own,) = [
        each.fd for each in psutil.Process().net_connections() if each.laddr and each.laddr.port == port
    ]
    return struct.unpack("i", fcntl.ioctl(own, termios.FIONREAD, bytes(4)))[0]


async def read(stream, size, pause):
    """Return the given number of bytes, with a pause after each piece."""
    found = b""
    while len(found) < size:
        found += await asyncio.wait_for(anext(stream.pieces), 10)
        await stream.pause(pause)
    return found


async def test_data_stay_in_the_socket_during_a_pause(tls):
    async with opened(tls) as (server, stream):
        pause = asyncio.create_task(stream.pause(2))
        for _ in range(20):
            await asyncio.sleep(0.005)
            server.send(MESSAGE)
        await asyncio.sleep(0.02)
        assert count_unread(server) >= 19 * len(MESSAGE)
        await pause
        assert await anext(stream.pieces) == 20 * MESSAGE


async def test_a_stream_continues_after_a_pause_with_more_data_than_buffers_hold(tls):
    async with opened(tls) as (server, stream):
        for _ in range(5_000):
            server.send(MESSAGE)
        assert await read(stream, 5_000 * len(MESSAGE), 0.01) == 5_000 * MESSAGE


async def test_a_pause_after_the_end_of_the_response_returns(tls):
    async with opened(tls) as (server, stream):
        server.writer.write(b"0\r\n\r\n")
        assert [piece async for piece in stream.pieces] == []
        await stream.pause(0)

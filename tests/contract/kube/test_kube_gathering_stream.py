"""What comes of a watch between two looks at it waits where it costs nothing: in the socket."""

import asyncio
import fcntl
import ssl
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import Authority
from kube_world import until

from backend_plugin.kube.api import Api, Stream
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.credentials import Access
from backend_plugin.shell.cluster import Unavailable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = [b"%03d" % number for number in range(100)]


class Certain:
    """Credentials that are what they are."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def load(self) -> Access:
        return self._access

    def forget(self) -> None:
        """There is nothing else."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def unread(stream: Stream) -> int:
    """Bytes that lie in the socket."""
    connection = stream._response.connection
    assert connection is not None
    assert connection.transport is not None
    file = connection.transport.get_extra_info("socket").fileno()
    return int(struct.unpack("i", fcntl.ioctl(file, termios.FIONREAD, struct.pack("i", 0)))[0])


@asynccontextmanager
async def streamed(folder: Path, *, tls: bool) -> AsyncIterator[tuple[Stream, asyncio.StreamWriter]]:
    """An answer that has begun, and who writes it."""
    writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    authority = Authority()
    cert, key, trusted = folder / "s.crt", folder / "s.key", folder / "ca.crt"
    authority.issue("server", cert, key)
    trusted.write_bytes(authority.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await writer.drain()
        await writers.put(writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context if tls else None)
    port = server.sockets[0].getsockname()[1]
    scheme = "https" if tls else "http"
    connection = Connection(Certain(Access(server=f"{scheme}://127.0.0.1:{port}", ca_file=str(trusted))))
    await connection.open()
    try:
        async with Api(connection, 10).stream(Question(path="/"), 60) as stream:
            writer = await writers.get()
            yield stream, writer
    finally:
        writer.close()
        await connection.close()
        server.close()


async def written(writer: asyncio.StreamWriter, words: list[bytes]) -> None:
    """Each by itself."""
    for word in words:
        writer.write(chunk(word))
        await writer.drain()
        await asyncio.sleep(0)


async def gathered(stream: Stream) -> bytes:
    """All that there is, with pauses."""
    said = b""
    async for piece in stream.pieces:
        said += piece
        await stream.gather(0.05)
    return said


@pytest.mark.parametrize("tls", [True, False])
def test_what_comes_meanwhile_stays_in_the_socket_and_comes_at_once(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with streamed(tmp_path, tls=tls) as (stream, writer):
            await written(writer, WORDS[:1])
            assert await anext(stream.pieces) == WORDS[0]
            gathering = asyncio.create_task(stream.gather(60))
            await asyncio.sleep(0)
            await written(writer, WORDS[1:])
            await until(lambda: unread(stream) >= sum(len(chunk(word)) for word in WORDS[1:]))
            gathering.cancel()
            await asyncio.wait([gathering])
            assert await anext(stream.pieces) == b"".join(WORDS[1:])

    asyncio.run(story())


@pytest.mark.parametrize("tls", [True, False])
def test_an_answer_may_end_while_it_is_gathered(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with streamed(tmp_path, tls=tls) as (stream, writer):
            await written(writer, [*WORDS, b""])
            assert await gathered(stream) == b"".join(WORDS)

    asyncio.run(story())


# Python 3.10 says of TLS that has broken off that nobody has closed it.
@pytest.mark.filterwarnings("ignore:.*_SSLProtocolTransport.__del__:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("tls", [True, False])
def test_an_answer_that_breaks_off_while_it_is_gathered_is_told_so(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with streamed(tmp_path, tls=tls) as (stream, writer):
            await written(writer, WORDS)
            writer.transport.abort()
            await gathered(stream)

    with pytest.raises(Unavailable):
        asyncio.run(story())

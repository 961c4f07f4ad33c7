"""What comes of a watch between two looks at it waits where it costs nothing: in the socket."""

import asyncio
import fcntl
import ssl
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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


class Peer:
    """A server that begins answers and leaves them to the test, and who asks it."""

    def __init__(self) -> None:
        self.writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self.connections = self.open = 0
        self.api: Api

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with suppress(asyncio.IncompleteReadError, OSError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(HEAD)
                await self.writers.put(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self.open -= 1

    @asynccontextmanager
    async def streamed(self) -> AsyncIterator[tuple[Stream, asyncio.StreamWriter]]:
        """An answer that has begun, and who writes it."""
        async with self.api.stream(Question(path="/"), 60) as stream:
            yield stream, await self.writers.get()


@asynccontextmanager
async def connected(folder: Path, *, tls: bool) -> AsyncIterator[Peer]:
    authority, peer = Authority(), Peer()
    cert, key, trusted = folder / "s.crt", folder / "s.key", folder / "ca.crt"
    authority.issue("server", cert, key)
    trusted.write_bytes(authority.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    server = await asyncio.start_server(peer.answer, "127.0.0.1", 0, ssl=context if tls else None)
    url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connection = Connection(Certain(Access(server=url, ca_file=str(trusted))))
    await connection.open()
    peer.api = Api(connection, 10)
    try:
        yield peer
    finally:
        await connection.close()
        await until(lambda: not peer.open)
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
        async with connected(tmp_path, tls=tls) as peer, peer.streamed() as (stream, writer):
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
def test_an_answer_may_end_while_it_is_gathered_and_another_follow(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with connected(tmp_path, tls=tls) as peer, peer.streamed() as (stream, writer):
            await written(writer, [*WORDS, b""])
            assert await gathered(stream) == b"".join(WORDS)
            async with peer.streamed() as (following, same):
                await written(same, [*WORDS[:3], b""])
                assert await gathered(following) == b"".join(WORDS[:3])
            assert peer.connections == 1

    asyncio.run(story())


# Python 3.10 says of TLS that has broken off that nobody has closed it.
@pytest.mark.filterwarnings("ignore:.*_SSLProtocolTransport.__del__:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("tls", [True, False])
def test_an_answer_that_breaks_off_while_it_is_gathered_is_told_so(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with connected(tmp_path, tls=tls) as peer, peer.streamed() as (stream, writer):
            await written(writer, WORDS)
            writer.transport.abort()
            await gathered(stream)

    with pytest.raises(Unavailable):
        asyncio.run(story())

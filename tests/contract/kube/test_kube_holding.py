"""What comes of a watch waits where it costs nothing, in the socket, until somebody wants to know it."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from kube_server import KubeServer, served
from kube_world import JOBS, NAME, PODS, following, job, opened, options, pod, put, until

from backend_plugin.kube import holding
from backend_plugin.kube.api import Api, Stream
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.credentials import Access
from backend_plugin.kube.holding import FRESH, Holding
from backend_plugin.shell.cluster import Unavailable
from backend_plugin.shell.timeouts import timeout

REPLICA = f"{NAME}-master-0"
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


class Reading:
    """Somebody who reads a stream that is held, piece by piece."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.pieces: list[bytes] = []

    async def all_of(self, stream: Stream) -> None:
        with self.holding.held(stream.connection, leads=False) as held:
            async for piece in stream.pieces:
                self.pieces.append(piece)
                held.hold()


@contextmanager
def reading(stream: Stream, seconds: float = 60) -> Iterator[Reading]:
    read = Reading(Holding(seconds))
    task = asyncio.create_task(read.all_of(stream))
    try:
        yield read
        assert not task.done() or task.exception() is None
    finally:
        task.cancel()


@asynccontextmanager
async def held(folder: Path, *, tls: bool, seconds: float = 60) -> AsyncIterator[tuple[Reading, Any]]:
    """A stream whose first word is read, and which is held since; and who writes it."""
    async with connected(folder, tls=tls) as peer, peer.streamed() as (stream, writer):
        with reading(stream, seconds) as read:
            await written(writer, WORDS[:1])
            assert read.pieces == WORDS[:1]
            yield read, writer


async def written(writer: asyncio.StreamWriter, words: list[bytes]) -> None:
    """Each by itself."""
    for word in words:
        writer.write(chunk(word))
        await writer.drain()
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)  # All of it has come.


both = pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])


@both
def test_what_comes_waits_until_somebody_wants_to_know(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with held(tmp_path, tls=tls) as (read, writer):
            await written(writer, WORDS[1:])
            assert read.pieces == WORDS[:1]
            await asyncio.gather(*(read.holding.catch_up() for _ in range(10)))
            assert read.pieces == [WORDS[0], b"".join(WORDS[1:])]

    asyncio.run(story())


def test_who_has_just_asked_is_answered_with_what_was_found_then(tmp_path: Path) -> None:
    async def story() -> None:
        async with held(tmp_path, tls=True) as (read, writer):
            await read.holding.catch_up()
            writer.write(chunk(WORDS[1]))
            await asyncio.sleep(0.01)
            await read.holding.catch_up()
            assert read.pieces == WORDS[:1]
            await asyncio.sleep(FRESH)
            await read.holding.catch_up()
            assert read.pieces == WORDS[:2]

    asyncio.run(story())


@both
@pytest.mark.parametrize("turns", range(5))
def test_what_has_left_the_socket_is_told_to_who_asks_then(tmp_path: Path, tls: bool, turns: int) -> None:
    async def story() -> None:
        async with held(tmp_path, tls=tls) as (read, writer):
            await written(writer, WORDS[1:2])
            read.holding.hurry()
            for _ in range(turns):
                await asyncio.sleep(0)
            await read.holding.catch_up()
            assert read.pieces == WORDS[:2]

    asyncio.run(story())


def test_what_nobody_asks_for_is_read_after_its_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with held(tmp_path, tls=True, seconds=0.3) as (read, writer):
            await written(writer, WORDS[1:])
            assert read.pieces == WORDS[:1]
            await until(lambda: len(read.pieces) == 2)
            assert b"".join(read.pieces) == b"".join(WORDS)

    asyncio.run(story())


@both
def test_much_is_read_though_nobody_asks(tmp_path: Path, tls: bool) -> None:
    """An API server leaves whoever takes nothing."""

    async def story() -> None:
        async with held(tmp_path, tls=tls) as (read, writer):
            async with timeout(10):
                await written(writer, [bytes(1 << 18)] * 32)
            assert sum(map(len, read.pieces)) > 1 << 22

    asyncio.run(story())


@both
def test_an_answer_may_end_while_it_is_held_and_its_connection_serve_others(
    tmp_path: Path, tls: bool
) -> None:
    async def story() -> None:
        async with connected(tmp_path, tls=tls) as peer:
            async with peer.streamed() as (stream, writer):
                read = Reading(Holding(60))
                whole = asyncio.create_task(read.all_of(stream))
                await written(writer, WORDS[:1])
                await written(writer, [*WORDS[1:], b""])
                assert not whole.done()
                await read.holding.catch_up()
                await whole
            assert b"".join(read.pieces) == b"".join(WORDS)
            async with peer.streamed() as (following, same), timeout(5):
                for word in WORDS[:3]:
                    await written(same, [word])
                    assert await anext(following.pieces) == word
            assert peer.connections == 1

    asyncio.run(story())


# Python 3.10 says of TLS that has broken off that nobody has closed it.
@pytest.mark.filterwarnings("ignore:.*_SSLProtocolTransport.__del__:pytest.PytestUnraisableExceptionWarning")
@both
def test_an_answer_that_breaks_off_while_it_is_held_is_told_so_at_once(tmp_path: Path, tls: bool) -> None:
    async def story() -> None:
        async with connected(tmp_path, tls=tls) as peer, peer.streamed() as (stream, writer):
            whole = asyncio.create_task(Reading(Holding(60)).all_of(stream))
            await written(writer, WORDS[:1])
            await written(writer, WORDS[1:])
            writer.transport.abort()
            async with timeout(5):
                await whole

    with pytest.raises(Unavailable):
        asyncio.run(story())


def test_who_asks_waits_a_moment_for_what_is_not_whole(tmp_path: Path) -> None:
    """A record of TLS that has half come can be read by nobody."""

    async def story() -> None:
        async with held(tmp_path, tls=True) as (read, writer):
            file = writer.transport.get_extra_info("socket").fileno()
            os.write(file, b"\x17\x03\x03\x10\x00half")
            await asyncio.sleep(0.1)
            async with timeout(5):
                await asyncio.gather(*(read.holding.catch_up() for _ in range(3)))
            assert read.pieces == WORDS[:1]

    asyncio.run(story())


# ---- in a cluster


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with served() as server:
        yield server


def test_what_nobody_asks_for_waits_until_somebody_does_or_a_job_says_more(
    server: KubeServer, tmp_path: Path
) -> None:
    server.do(put(JOBS, job()))
    server.do(put(PODS, pod(phase="Unknown")))

    async def all_of_it() -> None:
        said = options(server, tmp_path, unasked=60)
        async with opened(said) as cluster, following(cluster) as heard:

            def phase() -> Any:
                return heard.there["Pod"]["ns", REPLICA].phase

            server.do(put(PODS, pod()))
            await until(lambda: phase() == "Pending")
            server.do(put(PODS, pod(phase="Running")))
            await asyncio.sleep(0.3)
            assert phase() == "Pending"
            await cluster.catch_up()
            assert phase() == "Running"
            server.do(put(PODS, pod(phase="Failed")))
            await asyncio.sleep(0.3)
            assert phase() == "Running"
            for word in ("one", "two"):
                server.do(put(JOBS, job(status={"conditions": [{"type": word, "status": "True"}]})))
                await asyncio.sleep(0.2)
            await until(lambda: phase() == "Failed")

    asyncio.run(all_of_it())


def test_who_asks_waits_no_longer_than_it_takes_to_read(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much has come: with 8 kB a pod sixteen changes are more than is read in one go."""
    monkeypatch.setattr(holding, "_WAIT", 60)

    async def all_of_it() -> None:
        said = options(server, tmp_path, unasked=60)
        async with opened(said) as cluster, following(cluster) as heard:
            for total in (1, 5, 20, 30, 40, 25):
                for number in range(total):
                    there = pod(f"{REPLICA}{number}", phase=f"P{total}", note="x" * 6_000)
                    server.do(put(PODS, there))
                await asyncio.sleep(0.2)
                async with timeout(10):
                    await cluster.catch_up()
                phases = [heard.there["Pod"]["ns", f"{REPLICA}{number}"].phase for number in range(total)]
                assert phases == [f"P{total}"] * total

    asyncio.run(all_of_it())

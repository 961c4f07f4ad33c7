"""Connections that are kept: which one is used again, and what an answer is, byte by byte."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest

from backend_plugin.kube import channels
from backend_plugin.kube.channels import Channels, Lost, Place
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.credentials import Access

GET = b"GET /a HTTP/1.1\r\nHost: api\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SIZE = b"Content-Length: 4\r\n\r\n"
HANG_UP = object()


class Speaker:
    """An HTTP server that says what it is told to, a list of pieces for each question in turn."""

    def __init__(self):
        self.answers = []
        self.asked = []
        """Each question, by the number of its connection."""
        self.ended = []
        """Connections that who asks has ended."""
        self.writers = []

    async def serve(self, reader, writer):
        number = len(self.writers)
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(size[1]) if size else 0)
                self.asked.append((number, head + body))
                for piece in self.answers.pop(0) if self.answers else [OK]:
                    if piece is HANG_UP:
                        writer.close()
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.append(number)
            writer.close()


@asynccontextmanager
async def speaking(*answers):
    speaker = Speaker()
    speaker.answers = [*answers]
    server = await asyncio.start_server(speaker.serve, "127.0.0.1", 0)
    asking = Channels()
    place = Place("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield speaker, asking, place
    finally:
        asking.close()
        server.close()
        for writer in speaker.writers:
            writer.close()
        await server.wait_closed()


def used(speaker):
    return [number for number, _ in speaker.asked]


async def until(condition):
    async with channels.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def asked_once(*pieces):
    async def check():
        async with speaking(pieces) as (_, asking, place), channels.timeout(5):
            return await asking.ask(place, GET, may_repeat=False)

    return asyncio.run(check())


# ---- what an answer is


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 403 No\r\nretry-after: 3\r\n" + SIZE, b"so", b"rt"],
        [
            b"HTTP/1.1 403 No\r\nRETRY-AFTER: 3\r\nTransfer-Enc",
            b"oding: chunked\r\n\r\n4\r\nsort\r\n0\r\n\r\n",
        ],
        [b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n", b"HTTP/1.1 403 No\r\nRetry-After: 3\r\n" + SIZE + b"sort"],
        # A page of a proxy, which ends where its connection does.
        [b"HTTP/1.0 403 Forbidden\r\nRetry-After: 3\r\n\r\nso", b"rt", HANG_UP],
    ],
)
def test_an_answer_is_whole_however_it_comes(pieces):
    reply = asked_once(*pieces)
    assert (reply.status, reply.headers["Retry-After"], reply.body) == (403, "3", b"sort")
    assert "Link" not in reply.headers


def test_an_answer_may_have_no_body():
    reply = asked_once(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (reply.status, reply.body) == (204, b"")


def test_a_large_answer_comes_as_it_was_sent():
    body = bytes(range(256)) * 20_000
    assert asked_once(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body).body == body


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([HANG_UP], "closed"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", HANG_UP], "closed"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", HANG_UP], "closed"),
        ([b"HTTP/1.1 200 OK\r\nContent-Len", HANG_UP], "closed"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "no HTTP"),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"], "no HTTP"),
    ],
)
def test_half_an_answer_is_none(pieces, said):
    with pytest.raises(Lost, match=said):
        asked_once(*pieces)


# ---- which connection is asked


def test_connections_are_used_again_and_as_many_as_are_needed_at_once():
    async def check():
        async with speaking() as (speaker, asking, place):
            for _ in range(3):
                await asyncio.gather(*(asking.ask(place, GET, may_repeat=True) for _ in range(2)))
            return used(speaker)

    assert sorted(asyncio.run(check())) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "last",
    [
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"],
        [OK + OK],
        [OK + b"HTTP/1.1 2"],
        [OK, b"unasked"],
        [OK, HANG_UP],
    ],
)
def test_a_connection_that_is_not_to_be_used_again_is_not(last):
    async def check():
        async with speaking(last) as (speaker, asking, place):
            assert (await asking.ask(place, GET, may_repeat=False)).body == b"{}"
            await asyncio.sleep(0.1)
            assert (await asking.ask(place, GET, may_repeat=False)).body == b"{}"
            return used(speaker)

    assert asyncio.run(check()) == [0, 1]


def test_what_a_kept_connection_does_not_hear_is_asked_again_on_a_new_one():
    async def check():
        # It ends at the moment at which it is asked once more.
        async with speaking([OK], [HANG_UP], [OK]) as (speaker, asking, place):
            await asking.ask(place, GET, may_repeat=True)
            await asking.ask(place, GET, may_repeat=True)
            return used(speaker)

    assert asyncio.run(check()) == [0, 0, 1]


@pytest.mark.parametrize(
    ("may_repeat", "second"), [(False, [HANG_UP]), (True, [b"HTTP/1.1 200 OK\r\n", HANG_UP])]
)
def test_what_may_have_been_done_or_was_answered_in_part_is_not_asked_again(may_repeat, second):
    async def check():
        async with speaking([OK], second) as (speaker, asking, place):
            await asking.ask(place, GET, may_repeat=may_repeat)
            with pytest.raises(Lost):
                await asking.ask(place, GET, may_repeat=may_repeat)
            return used(speaker)

    assert asyncio.run(check()) == [0, 0]


def test_a_new_connection_that_is_not_heard_is_not_tried_for_ever():
    async def check():
        async with speaking([HANG_UP]) as (speaker, asking, place):
            with pytest.raises(Lost):
                await asking.ask(place, GET, may_repeat=True)
            return used(speaker)

    assert asyncio.run(check()) == [0]


def test_whoever_no_longer_waits_ends_the_connection_and_nobody_gets_his_answer():
    async def check():
        async with speaking([b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"], [OK]) as (
            speaker,
            asking,
            place,
        ):
            with pytest.raises(asyncio.TimeoutError):
                async with channels.timeout(0.2):
                    await asking.ask(place, GET, may_repeat=True)
            await until(lambda: speaker.ended == [0])
            return (await asking.ask(place, GET, may_repeat=True)).body, used(speaker)

    assert asyncio.run(check()) == (b"{}", [0, 1])


def test_connections_to_where_nobody_is_asked_any_more_are_ended():
    async def check():
        async with speaking() as (speaker, asking, place):
            await asking.ask(place, GET, may_repeat=False)
            elsewhere = Place("localhost", place.port)
            await asking.ask(elsewhere, GET, may_repeat=False)
            await until(lambda: speaker.ended == [0])
            return used(speaker)

    assert asyncio.run(check()) == [0, 1]


def test_who_is_asked_elsewhere_meanwhile_leaves_no_connection_behind():
    async def check():
        slow = [b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n", b"\r\n", b"{}"]
        async with speaking(slow) as (speaker, asking, place):
            first = asyncio.create_task(asking.ask(place, GET, may_repeat=False))
            await until(lambda: speaker.asked)
            await asking.ask(Place("localhost", place.port), GET, may_repeat=False)
            assert (await first).body == b"{}"
            await until(lambda: speaker.ended == [0])

    asyncio.run(check())


def test_connections_that_were_not_used_for_long_are_ended(monkeypatch):
    monkeypatch.setattr(channels, "_KEPT", 0.2)

    async def check():
        async with speaking() as (speaker, asking, place):
            await asyncio.gather(*(asking.ask(place, GET, may_repeat=False) for _ in range(3)))
            await until(lambda: sorted(speaker.ended) == [0, 1, 2])
            await asking.ask(place, GET, may_repeat=False)
            await until(lambda: sorted(speaker.ended) == [0, 1, 2, 3])

    asyncio.run(check())


def test_who_hangs_up_at_once_is_not_waited_for():
    async def check():
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
        asking, place = Channels(), Place("127.0.0.1", server.sockets[0].getsockname()[1])
        async with server, channels.timeout(5):
            for _ in range(50):
                with pytest.raises(Lost):
                    await asking.ask(place, GET, may_repeat=True)

    asyncio.run(check())


def test_a_host_is_looked_up_once_for_all_who_connect_to_it():
    async def check():
        async with speaking() as (speaker, asking, place):
            loop, looked = asyncio.get_running_loop(), []
            known = loop.getaddrinfo

            async def slowly(*said, **more):
                looked.append(said)
                await asyncio.sleep(0.2)
                return await known(*said, **more)

            loop.getaddrinfo = slowly
            local = Place("localhost", place.port)
            await asyncio.gather(*(asking.ask(local, GET, may_repeat=False) for _ in range(20)))
            return len(looked), len(set(used(speaker)))

    assert asyncio.run(check()) == (1, 20)


def test_where_one_server_is_says_nothing_of_another():
    async def check():
        async with speaking() as (one, asking, place), speaking() as (other, _, elsewhere):
            for each in (place, elsewhere, place):
                await asking.ask(each, GET, may_repeat=False)
            return used(one), used(other)

    assert asyncio.run(check()) == ([0, 1], [0])


def test_a_host_that_is_not_known_is_looked_up_again():
    async def check():
        async with speaking() as (_, asking, place):
            loop = asyncio.get_running_loop()
            known, nobody = loop.getaddrinfo, Place("nobody.invalid", place.port)

            async def unknown(*said, **more):
                raise OSError("Name or service not known")

            loop.getaddrinfo = unknown
            with pytest.raises(Lost, match=f"nobody.invalid:{place.port}: Name or service not known"):
                await asking.ask(nobody, GET, may_repeat=False)
            loop.getaddrinfo = lambda host, *said, **more: known("localhost", *said, **more)
            return await asking.ask(nobody, GET, may_repeat=False)

    assert asyncio.run(check()).status == 200


def test_a_connection_that_comes_after_the_end_is_ended():
    async def check():
        async with speaking() as (speaker, asking, place):
            task = asyncio.create_task(asking.ask(place, GET, may_repeat=False))
            await asyncio.sleep(0)
            asking.close()
            with pytest.raises(Lost):
                await task
            return used(speaker)

    assert asyncio.run(check()) == []


def test_nobody_there_is_told_with_the_address():
    async def check():
        async with speaking() as (_, asking, place):
            pass
        with pytest.raises(Lost, match=f"127.0.0.1:{place.port}: .*Connect call failed"):
            await asking.ask(place, GET, may_repeat=True)

    asyncio.run(check())


def test_who_takes_a_connection_and_no_handshake_is_given_up(monkeypatch):
    monkeypatch.setattr(channels, "CONNECT", 0.2)

    async def check():
        async with speaking() as (_, asking, place):
            tls = channels.ssl.create_default_context()
            with pytest.raises(Lost, match=f"127.0.0.1:{place.port}: no connection within 0.2 s"):
                await asking.ask(Place(place.host, place.port, tls), GET, may_repeat=False)

    asyncio.run(check())


# ---- what is asked


class Account:
    """Credentials that stay as they are."""

    def __init__(self, access):
        self._access = access

    async def load(self):
        return self._access

    def forget(self):
        pass


def told(access, question):
    async def check():
        async with speaking() as (speaker, _, place):
            connection = Connection(Account(Access(server=f"http://127.0.0.1:{place.port}{access}")))
            await connection.open()
            try:
                await connection.ask(question, 5)
            finally:
                await connection.close()
            return place.port, speaker.asked[0][1]

    return asyncio.run(check())


def test_a_question_is_one_request_of_http():
    question = Question(
        method="POST", path="/api/v1/x", query={"fieldManager": "a b", "continue": "x&y"}, body=b"{}"
    )
    port, request = told("/k8s/clusters/c-1", question)
    lines = request.decode().split("\r\n")
    assert lines[0] == "POST /k8s/clusters/c-1/api/v1/x?fieldManager=a+b&continue=x%26y HTTP/1.1"
    assert set(lines[1:-2]) == {
        f"Host: 127.0.0.1:{port}",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "User-Agent: kfpytorch",
        "Content-Type: application/json",
        "Content-Length: 2",
    }
    assert lines[-2:] == ["", "{}"]


def test_a_url_may_say_who_we_are():
    async def check():
        async with speaking() as (speaker, _, place):
            connection = Connection(Account(Access(server=f"http://u:p%40w@127.0.0.1:{place.port}")))
            await connection.open()
            try:
                await connection.ask(Question(path="/api"), 5)
            finally:
                await connection.close()
            return speaker.asked[0][1]

    assert b"\r\nAuthorization: Basic dTpwQHc=\r\n" in asyncio.run(check())


@pytest.mark.parametrize("server", ["", "127.0.0.1:6443", "localhost:6443", "https://", "ftp://localhost:1"])
def test_what_is_no_url_of_a_server_is_told(server):
    async def check():
        connection = Connection(Account(Access(server=server)))
        await connection.open()
        try:
            with pytest.raises(Lost, match="write https://HOST:PORT"):
                await connection.ask(Question(path="/api"), 5)
        finally:
            await connection.close()

    asyncio.run(check())


def test_no_value_of_ours_begins_another_line():
    with pytest.raises(ValueError, match="more than one line"):
        told("", Question(path="/api", accept="application/json\r\nAuthorization: Bearer other"))


def test_nothing_is_asked_over_a_connection_that_was_closed():
    async def check():
        async with speaking() as (speaker, _, place):
            connection = Connection(Account(Access(server=f"http://127.0.0.1:{place.port}")))
            await connection.open()
            await connection.ask(Question(path="/api"), 5)
            await connection.close()
            await until(lambda: speaker.ended == [0])
            with pytest.raises(Lost, match="not connected"):
                await connection.ask(Question(path="/api"), 5)

    asyncio.run(check())

"""Connections that are kept for questions whose answer comes as a whole: HTTP/1.1, one question at a time.

Lives here: connections, and the bytes of HTTP. Does not: who asks, and how often. Answers that come piece by
piece, and those that come by way of a proxy, are for aiohttp; see `connection`.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from socket import SOCK_STREAM
from typing import Any, Final, cast

import httptools
from aiohappyeyeballs import AddrInfoType, start_connection
from multidict import CIMultiDict

from backend_plugin.shell.timeouts import timeout

CONNECT: Final = 5.0
"""Seconds until there is a connection."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds until a host's other address is tried as well (RFC 8305)."""
_KEPT: Final = 15.0
"""Seconds for which a connection is kept unused: what lies between may forget it without a word."""
_KNOWN: Final = 10.0
"""Seconds for which a host has the addresses that were found."""
_ROOM: Final = 1 << 16
_CLOSED: Final = "the connection was closed"
_NO_HTTP: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class Lost(ConnectionError):
    """There was no connection, or it ended before all of the answer was there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an API server is, and by what it is recognized."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """For which its certificate must be, if not for its address."""


@dataclass(frozen=True, slots=True)
class Reply:
    """All of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Reading:
    """What comes on one connection; its methods beginning with ``on_`` are called by the parser."""

    def __init__(self, whole: Callable[[Reply], None]) -> None:
        """`whole` is called with each answer."""
        self._whole = whole
        self._parser = httptools.HttpResponseParser(self)
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._pieces: list[bytes] = []
        self.has_begun = self.is_under_way = self._is_headed = False

    def begin(self) -> None:
        """With what comes from now on."""
        self.has_begun = False

    def feed(self, piece: memoryview) -> None:
        """Go on; raises one of `_NO_HTTP`."""
        self._parser.feed_data(piece)

    def end(self) -> None:
        """Nothing else comes: with pages of a proxy only this says where they end."""
        told = "Content-Length" in self._headers or "Transfer-Encoding" in self._headers
        if self._is_headed and not told:
            self.on_message_complete()

    @property
    def goes_on(self) -> bool:
        """Whether its connection may be used for another question."""
        return self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        self._headers, self._pieces = CIMultiDict(), []
        self.has_begun = self.is_under_way = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        self._is_headed = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_under_way = self._is_headed = False
        status = self._parser.get_status_code()
        if status >= HTTPStatus.OK:  # Before it may come others, which are no answer.
            self._whole(Reply(status, self._headers, b"".join(self._pieces)))
        self._pieces = []


class _Channel(asyncio.BufferedProtocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, among: "set[_Channel]") -> None:
        """It is `among` others as long as it lasts."""
        self._among = among
        self._room = memoryview(bytearray(_ROOM))
        self._reading = _Reading(self._heard)
        self._waiting: asyncio.Future[Reply] | None = None
        """For whoever has asked, until he goes on."""
        self._is_open = True
        self.unused_since = 0.0

    async def ask(self, message: bytes) -> Reply:
        """The answer; whoever no longer waits for it ends the connection.

        Raises:
            Lost: If there is none.
        """
        if not self._is_open:
            raise Lost(_CLOSED)
        self._reading.begin()
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        try:
            return await self._waiting
        except BaseException:
            self.end()
            raise
        finally:
            self._waiting = None

    @property
    def is_usable(self) -> bool:
        """Whether another question may be asked."""
        return self._is_open and not self._reading.is_under_way

    @property
    def is_unheard(self) -> bool:
        """Whether nothing came after the last question."""
        return not self._reading.has_begun

    def end(self) -> None:
        """At once: what is under way is of no use."""
        self._is_open = False
        self._transport.abort()

    def _asker(self) -> "asyncio.Future[Reply] | None":
        """Who has yet to be answered."""
        return None if self._waiting is None or self._waiting.done() else self._waiting

    def _heard(self, reply: Reply) -> None:
        self._is_open = self._is_open and self._reading.goes_on
        if (waiting := self._asker()) is not None:
            waiting.set_result(reply)
        else:
            self.end()

    def _fail(self, why: str) -> None:
        if (waiting := self._asker()) is not None:
            waiting.set_exception(Lost(why))

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._among.add(self)

    def get_buffer(self, _: int) -> memoryview:
        return self._room

    def buffer_updated(self, size: int) -> None:
        if self._asker() is None:
            self.end()
            return
        try:
            self._reading.feed(self._room[:size])
        except _NO_HTTP as error:
            self._fail(f"what answers is no HTTP: {error}")
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_open = False
        self._among.discard(self)
        self._room = memoryview(b"")  # The rest goes when cycles are collected.
        self._reading.end()
        self._fail(str(error or _CLOSED))


class Channels:
    """To one place at a time; as many as are asked at once."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._all: set[_Channel] = set()
        self._unused: list[_Channel] = []
        """Who was used last is the last, and is used next."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._lookup: asyncio.Future[Any] | None = None
        """Of the host of `_place`, for all who connect."""
        self._looked = float("-inf")

    async def ask(self, place: Place, message: bytes, *, may_repeat: bool) -> Reply:
        """The answer to one question.

        Args:
            place: Who is asked; connections to others are not used again.
            message: All of the question.
            may_repeat: Ask again where a kept connection turns out to have ended.

        Raises:
            Lost: If there is no answer.
        """
        while (channel := self._kept(place)) is not None:
            try:
                return await self._asked(channel, place, message)
            except Lost:
                if not (may_repeat and channel.is_unheard):
                    raise
        return await self._asked(await self._connected(place), place, message)

    def close(self) -> None:
        """End all connections, also those that are yet to be made."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for channel in [*self._all]:
            channel.end()

    async def _asked(self, channel: _Channel, place: Place, message: bytes) -> Reply:
        reply = await channel.ask(message)
        if self._is_closed or place != self._place or not channel.is_usable:
            channel.end()
            return reply
        loop = asyncio.get_running_loop()
        channel.unused_since = loop.time()
        self._unused.append(channel)
        if self._timer is None:
            self._timer = loop.call_later(_KEPT, self._sweep)
        return reply

    def _kept(self, place: Place) -> _Channel | None:
        if place != self._place:
            self._place, self._lookup = place, None
            while self._unused:
                self._unused.pop().end()
        oldest = asyncio.get_running_loop().time() - _KEPT
        while self._unused:
            channel = self._unused.pop()
            if channel.is_usable and channel.unused_since > oldest:
                return channel
            channel.end()
        return None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEPT
        for channel in self._unused:
            if channel.unused_since <= oldest:
                channel.end()
        self._unused = [channel for channel in self._unused if channel.is_usable]
        self._timer = loop.call_later(_KEPT, self._sweep) if self._unused else None

    async def _connected(self, place: Place) -> _Channel:
        loop = asyncio.get_running_loop()
        try:
            async with timeout(CONNECT):
                addresses = await self._addresses(place)
                socket = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS)
                _, channel = await loop.create_connection(
                    lambda: _Channel(self._all),
                    sock=socket,
                    ssl=place.tls,
                    # Names in certificates have no dot at their end.
                    server_hostname=(place.server_name or place.host).rstrip(".") if place.tls else None,
                )
        except asyncio.TimeoutError:
            raise Lost(f"{place.host}:{place.port}: no connection within {CONNECT:g} s") from None
        except OSError as error:
            raise Lost(f"{place.host}:{place.port}: {error}") from error
        if self._is_closed:
            channel.end()
        return channel

    async def _addresses(self, place: Place) -> Sequence[AddrInfoType]:
        """Of a host, looked up once for all who wait, and for who comes in the next seconds."""
        loop = asyncio.get_running_loop()
        known = self._lookup
        is_over = known is not None and known.done() and (known.cancelled() or known.exception() is not None)
        if known is None or is_over or loop.time() - self._looked > _KNOWN:
            looking = loop.getaddrinfo(place.host, place.port, type=SOCK_STREAM)
            known = self._lookup = asyncio.ensure_future(looking)
            # Also where nobody waits for it any more.
            known.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._looked = loop.time()
        found: Sequence[AddrInfoType] = await asyncio.shield(known)
        return found

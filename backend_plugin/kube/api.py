"""One question to the API server, asked as often as its time allows.

Lives here: deadlines, repetition, and how many are asked at a time. Does not: what is asked.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import aiohttp

from backend_plugin.core.values import Manifest
from backend_plugin.kube import answers, wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.parsed import Malformed
from backend_plugin.shell.cluster import Unavailable
from backend_plugin.shell.timeouts import timeout

T = TypeVar("T")

_AT_A_TIME: Final = 64
"""Questions under way; the API server's own limit for all of its clients is some hundreds."""
_BEHIND_AT_A_TIME: Final = 16
"""Of those that nobody waits for: where the API server has enough to do, more of them are done no sooner, and
a CreateTask waits the longer."""
_OF_ONE_NAMESPACE: Final = 0.75
"""The part of the places that one namespace may have: where all of its questions hang, as behind a webhook of
its own that never answers, those of others find one."""
_ATTEMPT: Final = 4.0
"""Seconds for one attempt: a connection that is dead without saying so leaves time for a second one."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0
_PAGE: Final = 60.0
"""Seconds for a page of a list."""
_SUCCESS: Final = range(200, 300)
# What is raised where the other side, or what lies between, has trouble.
_LOST: Final = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class Silent(Unavailable):
    """Nothing was heard for too long."""


class Stream:
    """An answer that comes piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.media_type: Final = response.content_type
        self.pieces: Final[AsyncIterator[bytes]] = response.content.iter_any()

    @property
    def connection(self) -> socket.socket | None:
        """What it comes through; None where all of it has come."""
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        return transport.get_extra_info("socket") if transport is not None else None


class _Lane:
    """Questions that wait for each other, and for no others."""

    def __init__(self, at_a_time: int, *, is_long: bool = False) -> None:
        """So many have a place; if the lane `is_long`, waiting for one takes nothing of a question's time."""
        self.is_long = is_long
        self.slots = asyncio.Semaphore(at_a_time)
        """Taken for each attempt, and not between two of them."""
        self._share = max(1, int(at_a_time * _OF_ONE_NAMESPACE))
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def share(self, question: Question) -> asyncio.Semaphore:
        """The places of the question's namespace, to be taken before one of all."""
        _, _, rest = question.path.partition("/namespaces/")
        namespace = rest.partition("/")[0]
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = asyncio.Semaphore(self._share)
        return share


class Api:
    """Questions to one cluster. All of them may be asked twice: by name and uid, what is done is done."""

    def __init__(
        self,
        connection: Connection,
        patience: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Each question has `patience` seconds; `chance` spreads pauses."""
        self._connection = connection
        self._patience = patience
        self._chance = chance
        # Thousands of jobs that end at once hold up no new one and no abort; thousands of aborts no new one.
        self._calls = _Lane(_AT_A_TIME)
        self._deletions = _Lane(_AT_A_TIME, is_long=True)
        self._behind = _Lane(_BEHIND_AT_A_TIME, is_long=True)

    async def ask(self, question: Question) -> None:
        """Have something done; what the answer shows is of no use.

        Raises:
            Answered: If it is another than hoped for, and asking again would not help.
            Unavailable: If there was none in time.
        """
        await self.read(question, lambda _: None)

    async def object(self, question: Question) -> Manifest:
        """The object in the answer; half of one is no answer. Raises as `ask` does."""
        return await self.read(question, wire.object_of)

    async def read(self, question: Question, read: Callable[[bytes], T]) -> T:
        """What `read` makes of the answer; if it raises `Malformed`, there was none. Raises as `ask` does."""
        heard: list[Answered | Unavailable] = []
        lane = self._lane(question)
        try:
            async with timeout(None if lane.is_long else self._patience):
                return await self._insist(question, read, lane, heard)
        except asyncio.TimeoutError:
            late = Unavailable(f"the API server did not answer within {self._patience:g} s")
            raise (heard[-1] if heard else late) from None

    def _lane(self, question: Question) -> _Lane:
        if question.behind:
            return self._behind
        return self._deletions if question.method == "DELETE" else self._calls

    async def _insist(
        self, question: Question, read: Callable[[bytes], T], lane: _Lane, heard: list[Answered | Unavailable]
    ) -> T:
        """Ask until there is an answer; what was said on the way goes into `heard`."""
        loop = asyncio.get_running_loop()
        last, pause = loop.time() + self._patience, _FIRST_PAUSE
        trouble: Answered | Unavailable
        while True:
            asked = loop.time()
            try:
                async with lane.share(question), lane.slots:
                    # Who waits for those before has not been left without an answer.
                    last += loop.time() - asked if lane.is_long else 0.0
                    # Elsewhere `read` sees to it.
                    async with timeout(last - loop.time() if lane.is_long else None):
                        return read(await self.once(question, min(_ATTEMPT, self._patience)))
            except Answered as answer:
                # For its first second an API server has no rules yet, and refuses what it will permit.
                is_doubted = answer.is_not_authorized and question.doubts
                if not answer.is_passing and not is_doubted:
                    raise
                trouble = answer if is_doubted else _unavailable(answer)
                heard.append(trouble)
                wait = answer.retry_after
            except Malformed as malformed:
                trouble, wait = Unavailable(f"the API server answers {malformed}"), 0.0
                heard.append(trouble)
            except Unavailable as lost:
                trouble, wait = lost, 0.0
            wait = max(wait, pause * (0.5 + self._chance()))
            pause = min(2 * pause, _LONGEST_PAUSE)
            if loop.time() + wait >= last:
                raise trouble
            await asyncio.sleep(wait)

    async def once(self, question: Question, seconds: float = _PAGE) -> bytes:
        """The answer's body; asked again only with new credentials.

        Raises:
            Answered: If it is another than hoped for.
            Unavailable: If there was none.
        """
        try:
            return await self._once(question, seconds)
        except Answered as answer:
            if answer.code != HTTPStatus.UNAUTHORIZED:
                raise
        await self._connection.renew()
        return await self._once(question, seconds)

    async def _once(self, question: Question, seconds: float) -> bytes:
        try:
            reply = await self._connection.ask(question, seconds)
        except _LOST as error:
            raise _lost(error) from error
        if reply.status not in _SUCCESS:
            raise answers.read(reply.status, reply.headers, reply.body)
        return reply.body

    @asynccontextmanager
    async def stream(self, question: Question, silence: float) -> AsyncIterator[Stream]:
        """The answer as it comes.

        Raises:
            Answered: If it is another than hoped for.
            Silent: If nothing comes for so many seconds.
            Unavailable: If it breaks off.
        """
        try:
            async with self._connection.request(question, silence) as response:
                # A container that has not begun has 204, and no lines.
                if response.status not in _SUCCESS:
                    raise answers.read(response.status, response.headers, await response.read())
                yield Stream(response)
        except aiohttp.SocketTimeoutError as error:
            raise Silent(f"nothing was heard for {silence:g} s") from error
        except _LOST as error:
            raise _lost(error) from error

    async def renew(self) -> None:
        """What we are is not accepted: look again who we are."""
        await self._connection.renew()


def _unavailable(answer: Answered) -> Unavailable:
    return Unavailable(f"the API server answers {answer}")


def _lost(error: BaseException) -> Unavailable:
    if isinstance(error, aiohttp.ClientConnectorError):  # Its own words show objects of Python.
        said = f"{error.host}:{error.port}: {error.os_error}"
    else:
        said = str(error) or type(error).__name__
    return Unavailable(f"the API server cannot be reached: {said}")

"""Sends API requests with timeouts, retries and concurrency limits."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import aiohttp

from backend_plugin.core.values import Manifest
from backend_plugin.kube import api_errors, json_decoder
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.connection import ApiRequest, Connection
from backend_plugin.kube.decoder import MalformedResponse
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.together import timeout

T = TypeVar("T")

_AT_A_TIME: Final = 64
"""The maximum number of concurrent requests. The API server limits all its clients to some hundreds."""
_BACKGROUND_AT_A_TIME: Final = 16
"""The maximum number of concurrent background requests. On a busy API server, more of them would not
finish sooner, and would delay a CreateTask."""
_OF_ONE_NAMESPACE: Final = 0.75
"""The maximum share of the slots for requests of one namespace. Other namespaces still get slots if all these
requests hang, for example because a webhook does not respond."""
_ATTEMPT: Final = 4.0
"""The timeout in seconds of one attempt. It leaves time for a second attempt if the connection is dead."""
# Seconds for which a request is repeated after a 403: a new RBAC rule takes about a second to take effect in
# all API servers. A CreateTask waits longer for its pod group (`reconciler.ACCOMPANY_CALL`), so it receives
# this error.
_DENIED: Final = 1.5
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0
_PAGE: Final = 60.0
"""The timeout in seconds for a page of a list."""
_PASSES_TO_READ: Final = 3
"""The number of event loop iterations in which a resumed TLS transport reads the data that has arrived."""
# The log of a container that has not started is empty, with code 204.
_SUCCESS: Final = range(200, 300)
# Errors of the connection to the API server.
_LOST: Final = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class StreamStalled(ClusterUnavailable):
    """Raised if a stream received no data within the timeout."""


class ResponseStream:
    """A response; `pieces` yields the parts of its body as they arrive."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.media_type: Final = response.content_type
        self.pieces: Final[AsyncIterator[bytes]] = response.content.iter_any()

    async def pause(self, seconds: float) -> None:
        """Do not read the socket for `seconds`; `pieces` then yields the data of this time in one piece."""
        connection = self._response.connection
        if connection is None or connection.transport is None:  # The body is complete.
            return
        transport = connection.transport
        if hasattr(transport, "set_read_buffer_limits"):
            # By default, a paused TLS transport still receives each packet, up to 256 KiB.
            transport.set_read_buffer_limits(1)
        transport.pause_reading()
        await asyncio.sleep(seconds)
        transport.resume_reading()
        for _ in range(_PASSES_TO_READ):
            await asyncio.sleep(0)


class ConcurrencyLimit:
    """A concurrency limit that a group of requests shares."""

    def __init__(self, at_a_time: int, *, is_long: bool = False) -> None:
        """Allow `at_a_time` requests at once; if `is_long`, their timeout excludes the time in the queue."""
        self.is_long = is_long
        self.slots = asyncio.Semaphore(at_a_time)
        """The slots: a request holds one slot during each attempt, and none between its attempts."""
        self._share = max(1, int(at_a_time * _OF_ONE_NAMESPACE))
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def get_namespace_slots(self, request: ApiRequest) -> asyncio.Semaphore:
        """Return the semaphore that limits the requests for the request's namespace.

        Acquire it before one of `slots`, because a request that waits for this semaphore must not hold a
        slot, which a request for another namespace could use.
        """
        _, _, rest = request.path.partition("/namespaces/")
        namespace = rest.partition("/")[0]
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = asyncio.Semaphore(self._share)
        return share


@dataclass(slots=True)
class _RetryState:
    lane: ConcurrencyLimit
    deadline: float
    """The end of the attempts, in seconds on the clock of the event loop."""
    error: ApiError | ClusterUnavailable | None = None
    """The last transient error that the API server returned."""


class ApiClient:
    """Sends requests to one cluster. All requests are idempotent because of their names and uids."""

    def __init__(self, connection: Connection, request_timeout: float) -> None:
        """Create a client; `request_timeout` is the timeout in seconds for one request with its retries."""
        self._connection = connection
        self._request_timeout = request_timeout
        # Separate limits: cleanup must not delay other requests, and deletions must not delay creations.
        self._calls = ConcurrencyLimit(_AT_A_TIME)
        self._deletions = ConcurrencyLimit(_AT_A_TIME, is_long=True)
        self._background = ConcurrencyLimit(_BACKGROUND_AT_A_TIME, is_long=True)

    async def send(self, request: ApiRequest) -> None:
        """Send a request and ignore the body of the response.

        Raises:
            ApiError: If the API server returned an error that a retry does not resolve.
            ClusterUnavailable: If there was no response in time.
        """
        await self.fetch_decoded(request, lambda _: None)

    async def fetch_object(self, request: ApiRequest) -> Manifest:
        """Return the object in the response; retry after a truncated body. Raise the errors of `send`."""
        return await self.fetch_decoded(request, json_decoder.decode_object)

    async def fetch_decoded(self, request: ApiRequest, read: Callable[[bytes], T]) -> T:
        """Send a request with retries, and return the result of `read` for the body of the response.

        Also retry if `read` raises `MalformedResponse`.
        """
        state = _RetryState(
            self._select_limit(request), asyncio.get_running_loop().time() + self._request_timeout
        )
        try:
            async with timeout(None if state.lane.is_long else self._request_timeout):
                return await self._send_with_retries(request, read, state)
        except asyncio.TimeoutError:
            late = ClusterUnavailable(f"the API server did not answer within {self._request_timeout:g} s")
            raise state.error or late from None

    def _select_limit(self, request: ApiRequest) -> ConcurrencyLimit:
        if request.is_background:
            return self._background
        return self._deletions if request.method == "DELETE" else self._calls

    async def _send_with_retries(
        self, request: ApiRequest, read: Callable[[bytes], T], state: _RetryState
    ) -> T:
        """Send a request until it succeeds, fails permanently, or would exceed `state.deadline`."""
        loop = asyncio.get_running_loop()
        started, pause = loop.time(), _FIRST_PAUSE
        error: ApiError | ClusterUnavailable
        while True:
            wait = 0.0
            try:
                return await self._send_in_turn(request, read, state)
            except ApiError as answer:
                if _is_final(request, answer):
                    raise
                error = ClusterUnavailable(f"the API server answers {answer}")
                if answer.is_not_authorized:
                    # A 403 that persists is reported with the missing rule.
                    error = answer
                    state.deadline = min(state.deadline, started + _DENIED)
                state.error = error
                wait = answer.retry_after
            except ClusterUnavailable as lost:
                error = lost
            wait = max(wait, pause * (0.5 + random.random()))  # noqa: S311 - jitter needs no secrecy.
            pause = min(2 * pause, _LONGEST_PAUSE)
            if loop.time() + wait >= state.deadline:
                raise error
            await asyncio.sleep(wait)

    async def _send_in_turn(self, request: ApiRequest, read: Callable[[bytes], T], state: _RetryState) -> T:
        """Send the request once, as soon as the concurrency limit permits it."""
        loop, lane = asyncio.get_running_loop(), state.lane
        requested_at = loop.time()
        async with lane.get_namespace_slots(request), lane.slots:
            # The time for which requests wait in the queue does not count.
            state.deadline += loop.time() - requested_at if lane.is_long else 0.0
            # If `is_long` is False, `fetch_decoded` applies the timeout.
            async with timeout(state.deadline - loop.time() if lane.is_long else None):
                body = await self.send_once(request, min(_ATTEMPT, self._request_timeout))
            try:
                return read(body)
            except MalformedResponse as malformed:
                state.error = ClusterUnavailable(f"the API server answers {malformed}")
                raise state.error from malformed

    async def send_once(self, request: ApiRequest, seconds: float = _PAGE) -> bytes:
        """Send a request and return the response body. Retry only once, after a 401, with new credentials.

        Raises:
            ApiError: If the API server returned an error.
            ClusterUnavailable: If there was no response.
        """
        try:
            return await self._send_request(request, seconds)
        except ApiError as answer:
            if answer.code != HTTPStatus.UNAUTHORIZED:
                raise
        await self._connection.renew_credentials()
        return await self._send_request(request, seconds)

    async def _send_request(self, request: ApiRequest, seconds: float) -> bytes:
        try:
            await self._connection.refresh_credentials()  # The timeout does not include a reload.
            async with timeout(seconds), self._connection.open_response(request) as response:
                if response.status not in _SUCCESS:
                    raise await _read_error(response)
                return await response.read()
        except _LOST as error:
            raise _build_connection_error(error) from error

    @asynccontextmanager
    async def open_stream(self, request: ApiRequest, silence: float) -> AsyncIterator[ResponseStream]:
        """Send a request and yield the response while its body arrives.

        Raises:
            ApiError: If the API server returned an error.
            StreamStalled: If no data arrives for `silence` seconds.
            ClusterUnavailable: If the connection fails.
        """
        try:
            async with self._connection.open_response(request, silence) as response:
                if response.status not in _SUCCESS:
                    raise await _read_error(response)
                yield ResponseStream(response)
        except ApiError as answer:
            if answer.code == HTTPStatus.UNAUTHORIZED:
                await self._connection.renew_credentials()
            raise
        except aiohttp.SocketTimeoutError as error:
            raise StreamStalled(f"no data arrived for {silence:g} s") from error
        except _LOST as error:
            raise _build_connection_error(error) from error


async def _read_error(response: aiohttp.ClientResponse) -> ApiError:
    return api_errors.parse_error_response(response.status, response.headers, await response.read())


def _is_final(request: ApiRequest, answer: ApiError) -> bool:
    """True if a repetition of the request within seconds would return the same error."""
    if request.conflicts and answer.code == HTTPStatus.CONFLICT:
        return True
    # In its first second an API server has no rules and rejects permitted requests.
    return not (answer.is_transient or (answer.is_not_authorized and request.doubts))


def _build_connection_error(error: BaseException) -> ClusterUnavailable:
    if isinstance(error, aiohttp.ClientConnectorError):  # The message of aiohttp contains Python objects.
        description = f"{error.host}:{error.port}: {error.os_error}"
    else:
        description = str(error) or type(error).__name__
    return ClusterUnavailable(f"the API server cannot be reached: {description}")

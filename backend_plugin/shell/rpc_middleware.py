"""The middleware of all gRPC calls: authentication, concurrency limits and metrics.

It wraps the handlers. A gRPC interceptor would cost one more `await` for each call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from backend_plugin.core.errors import BackendError
from backend_plugin.shell.credentials import Token, read_peer_names
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.rpc_handlers import Handler, get_status

STREAMS: Final = 64
"""Maximum number of open streams. A client can keep a stream open for any time, and each open stream delays
other calls."""

REQUEST_BYTES: Final = 128 * 2**20
"""Maximum total bytes of the requests in progress: about ten requests of the largest accepted size."""

_OK: Final = grpc.StatusCode.OK


@dataclass(slots=True)
class RpcMiddleware(Handler):
    """Wraps handlers with authentication and limits.

    Streams have a limit of their own, because they last long and must not block unary calls.
    """

    handlers: Sequence[Handler]
    limit: int
    """Maximum number of concurrent unary calls; further calls are rejected with RESOURCE_EXHAUSTED."""
    token: Token | None = None
    """The token that every call must carry; None disables authentication."""
    metrics: Metrics = field(default_factory=Metrics)
    streams: int = STREAMS
    """Maximum number of open streams; further streams are rejected with RESOURCE_EXHAUSTED."""
    request_bytes: int = REQUEST_BYTES
    """Maximum total bytes of the requests in progress; further ones are rejected with RESOURCE_EXHAUSTED."""
    client_names: Set[str] = frozenset()
    """Accepted names in client certificates; if empty, every certificate of the CA is accepted."""
    running: int = field(default=0, init=False)
    held_bytes: int = field(default=0, init=False)
    streaming: int = field(default=0, init=False)
    _known: dict[str, Any] = field(default_factory=dict, init=False)

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method; None if no service has this method.

        For a call without a valid token, return a handler that rejects the call.
        """
        if self.token is not None and not self.token.is_in(handler_call_details.invocation_metadata):
            # A client without a token must not create metric labels, so the method name is not counted.
            self.metrics.requests.add("any", "UNAUTHENTICATED")
            return _REFUSAL
        method = handler_call_details.method
        if method not in self._known:
            found = next(filter(None, (each.service(handler_call_details) for each in self.handlers)), None)
            if found is None:
                return None
            self._known[method] = self._wrap_handler(found, method)
        return self._known[method]

    def _wrap_handler(self, handler: Any, method: str) -> Any:
        # Requests are parsed inside the limits, where a parse error can become INVALID_ARGUMENT.
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._wrap_unary(handler, method), response_serializer=handler.response_serializer
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._wrap_stream(handler.unary_stream, method, handler.request_deserializer or bytes),
                response_serializer=handler.response_serializer,
            )
        return grpc.stream_stream_rpc_method_handler(
            self._wrap_stream(handler.stream_stream, method, lambda requests: requests),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _wrap_unary(self, handler: Any, method: str) -> Callable[..., Any]:
        behaviour, read = handler.unary_unary, handler.request_deserializer or bytes
        name = method.rpartition(".")[2]
        durations = self.metrics.request_duration.labels(name)

        async def answer(data: bytes, context: Any) -> Any:
            await self._check_peer(context)
            size = len(data)
            if exceeded_limit := self._find_exceeded_limit(size):
                await self._abort_exhausted(name, context, exceeded_limit)
            self.running += 1
            self.held_bytes += size
            began = time.perf_counter()
            code = grpc.StatusCode.UNKNOWN
            try:
                request = read(data)
                del data  # Hold only the parsed request in memory.
                response = await behaviour(request, context)
            except (BackendError, DecodeError) as error:
                await _abort_failed(name, context, error)
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            else:
                code = _OK
                return response
            finally:
                self.running -= 1
                self.held_bytes -= size
                durations.observe(time.perf_counter() - began)
                self.metrics.requests.add(name, (context.code() or code).name)

        return answer

    def _find_exceeded_limit(self, size: int) -> str:
        if self.running >= self.limit:
            return f"{self.limit} calls are in progress"
        # A single request is accepted at any size, because gRPC enforces the size limit of one message.
        if self.held_bytes and self.held_bytes + size > self.request_bytes:
            return f"requests of {self.held_bytes} bytes are in progress"
        return ""

    def _wrap_stream(
        self, behaviour: Callable[..., Any], method: str, read: Callable[[Any], Any]
    ) -> Callable[..., Awaitable[None]]:
        name = method.rpartition(".")[2]

        # This is not a generator: after its client has gone, a generator ends only when it is garbage
        # collected, and it would count as an open stream until then.
        async def stream(request: Any, context: Any) -> None:
            await self._check_peer(context)
            if self.streaming >= self.streams:
                await self._abort_exhausted(name, context, f"{self.streams} streams are open")
            self.streaming += 1
            code = grpc.StatusCode.UNKNOWN
            try:
                await _write_responses(behaviour(read(request), context), context)
            except (BackendError, DecodeError) as error:
                await _abort_failed(name, context, error)
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            else:
                code = _OK
            finally:
                self.streaming -= 1
                self.metrics.requests.add(name, (context.code() or code).name)

        return stream

    async def _check_peer(self, context: Any) -> None:
        if self.client_names and not self.client_names & read_peer_names(context.auth_context()):
            self.metrics.requests.add("any", "UNAUTHENTICATED")
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "the client certificate has no name of tls.client-names; use another, or add its common name",
            )

    async def _abort_exhausted(self, name: str, context: Any, why: str) -> None:
        self.metrics.requests.add(name, "RESOURCE_EXHAUSTED")
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED, f"{why}, which is the limit of this server; retry later"
        )


async def _write_responses(answers: Any, context: Any) -> None:
    """Write each response that the iterator `answers` yields.

    If `answers` is a coroutine, which writes its responses itself, only await it.
    """
    if not isinstance(answers, AsyncIterator):
        await answers
        return
    async with aclosing(answers) as each_one:  # type: ignore[type-var]  # All our handlers are generators.
        async for each in each_one:
            await context.write(each)


async def _abort_failed(name: str, context: Any, error: BackendError | DecodeError) -> None:
    if isinstance(error, BackendError):
        await context.abort(*get_status(error))
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a valid request of {name}: {error}")


async def _abort_unauthenticated(_requests: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "this server requires a token: metadata authorization, Bearer TOKEN"
    )


_REFUSAL: Final = grpc.stream_stream_rpc_method_handler(_abort_unauthenticated)

"""What every call passes on its way in: may it, are there too many, and how did it end.

In front of the handlers rather than as an interceptor: those are awaited once more for each call, this
is a look into a dict.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from backend_plugin.shell.credentials import Token
from backend_plugin.shell.metrics import Metrics

if TYPE_CHECKING:
    Handler: TypeAlias = grpc.GenericRpcHandler[Any, Any]
else:
    Handler = grpc.GenericRpcHandler

STREAMS: Final = 64
"""How many streams are open at the same time: each holds a place for as long as its caller likes, and what
it tells costs time between the calls of others."""

REQUEST_BYTES: Final = 128 * 2**20
"""The sum of the sizes of all requests that are being answered: ten of the largest that are received."""

_OK: Final = grpc.StatusCode.OK


@dataclass(slots=True)
class Front(Handler):
    """Handlers that are only reached by who may, and not by too many at once.

    Calls that are answered with a stream have a limit of their own: they last, and must take no place of
    those that are answered at once.
    """

    handlers: Sequence[Handler]
    limit: int
    """How many calls are answered at the same time; more are told RESOURCE_EXHAUSTED."""
    token: Token | None = None
    """What every call has to carry; None lets everybody in."""
    metrics: Metrics = field(default_factory=Metrics)
    streams: int = STREAMS
    """How many streams are open at the same time; more are told the same."""
    request_bytes: int = REQUEST_BYTES
    """The sum of the sizes of the requests that are answered at the same time; more are told the same."""
    running: int = field(default=0, init=False)
    held_bytes: int = field(default=0, init=False)
    streaming: int = field(default=0, init=False)
    _known: dict[str, Any] = field(default_factory=dict, init=False)

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a method, as grpc asks for it; None if there is none of that name."""
        if self.token is not None and not self.token.is_in(handler_call_details.invocation_metadata):
            # Whoever is not let in does not choose what is counted either.
            self.metrics.requests.add("any", "UNAUTHENTICATED")
            return _REFUSAL
        method = handler_call_details.method
        return self._known.get(method) or self._handler(method, handler_call_details)

    def _handler(self, method: str, details: Any) -> Any:
        found = next((each for handler in self.handlers if (each := handler.service(details))), None)
        if found is not None:
            found = self._known[method] = self._limited(found, method)
        return found

    def _limited(self, found: Any, method: str) -> Any:
        # Requests are read behind the limit, and where bytes that are no request can be told so.
        if found.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._answer(found, method), response_serializer=found.response_serializer
            )
        if found.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(found.unary_stream, method, found.request_deserializer or bytes),
                response_serializer=found.response_serializer,
            )
        return grpc.stream_stream_rpc_method_handler(
            self._stream(found.stream_stream, method, _as_it_is),
            found.request_deserializer,
            found.response_serializer,
        )

    def _answer(self, found: Any, method: str) -> Callable[..., Any]:
        behaviour, read = found.unary_unary, found.request_deserializer or bytes
        name = method.rpartition(".")[2]
        durations = self.metrics.request_seconds.child(name)

        async def answer(data: bytes, context: Any) -> Any:
            size = len(data)
            if full := self._fullness(size):
                await self._exhausted(name, context, full)
            self.running += 1
            self.held_bytes += size
            began = time.perf_counter()
            code = grpc.StatusCode.UNKNOWN
            try:
                request = read(data)
                del data  # The request is held once, not twice.
                said = await behaviour(request, context)
            except DecodeError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no request of {name}: {error}")
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            else:
                code = _OK
                return said
            finally:
                self.running -= 1
                self.held_bytes -= size
                durations.add(time.perf_counter() - began)
                self.metrics.requests.add(name, (context.code() or code).name)

        return answer

    def _fullness(self, size: int) -> str:
        """Return the limit that a request of a size would exceed, or an empty string."""
        if self.running >= self.limit:
            return f"{self.limit} calls are being answered"
        # A single request is answered however large it is: the server's own limit applies to it.
        if self.held_bytes and self.held_bytes + size > self.request_bytes:
            return f"requests of {self.held_bytes} bytes are being answered"
        return ""

    def _stream(
        self, behaviour: Callable[..., Any], method: str, read: Callable[[Any], Any]
    ) -> Callable[..., Awaitable[None]]:
        name = method.rpartition(".")[2]

        # Writes by itself rather than being a generator: one whose caller has gone is ended by the garbage
        # collector, whenever that is, and would keep its place until then.
        async def stream(asked: Any, context: Any) -> None:
            if self.streaming >= self.streams:
                await self._exhausted(name, context, f"{self.streams} streams are open")
            self.streaming += 1
            code = grpc.StatusCode.UNKNOWN
            try:
                await _written(behaviour(read(asked), context), context)
            except DecodeError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no request of {name}: {error}")
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            else:
                code = _OK
            finally:
                self.streaming -= 1
                self.metrics.requests.add(name, (context.code() or code).name)

        return stream

    async def _exhausted(self, name: str, context: Any, why: str) -> None:
        self.metrics.requests.add(name, "RESOURCE_EXHAUSTED")
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED, f"{why}, which is the limit of this server; ask again later"
        )


async def _written(answers: Any, context: Any) -> None:
    """Write what a handler yields; one that yields nothing has written by itself."""
    if not isinstance(answers, AsyncIterator):
        await answers
        return
    async with aclosing(answers) as each_one:  # type: ignore[type-var]  # All of ours are generators.
        async for each in each_one:
            await context.write(each)


def _as_it_is(asked: Any) -> Any:
    """The requests of a caller who sends several are read as they come."""
    return asked


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "this server wants a token: metadata authorization, Bearer TOKEN"
    )


_REFUSAL: Final = grpc.stream_stream_rpc_method_handler(_refuse)

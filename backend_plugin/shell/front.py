"""What every call passes on its way in: may it, are there too many, and how did it end.

In front of the handlers rather than as an interceptor: those are awaited once more for each call, this
is a look into a dict. The health service is not behind it, so that it answers when others are refused.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
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

_OK: Final = grpc.StatusCode.OK


@dataclass(slots=True)
class Front(Handler):
    """Handlers that are only reached by who may, and not by too many at once.

    Calls that are answered with a stream are let in beside the limit: they last, and cost next to nothing.
    """

    handlers: Sequence[Handler]
    limit: int
    """How many calls are answered at the same time; more are told RESOURCE_EXHAUSTED."""
    token: Token | None = None
    """What every call has to carry; None lets everybody in."""
    metrics: Metrics = field(default_factory=Metrics)
    running: int = field(default=0, init=False)
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
        if found is not None and found.unary_unary is not None:
            # Read behind the limit, and where bytes that are no request can be told so.
            found = grpc.unary_unary_rpc_method_handler(
                self._answer(found, method), response_serializer=found.response_serializer
            )
        if found is not None:
            self._known[method] = found
        return found

    def _answer(self, found: Any, method: str) -> Callable[..., Any]:
        behaviour, read = found.unary_unary, found.request_deserializer or bytes
        name = method.rpartition(".")[2]
        durations = self.metrics.request_seconds.child(name)

        async def answer(data: bytes, context: Any) -> Any:
            if self.running >= self.limit:
                self.metrics.requests.add(name, "RESOURCE_EXHAUSTED")
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self.limit} calls are being answered, which is the limit of this server",
                )
            self.running += 1
            began = time.perf_counter()
            code = grpc.StatusCode.UNKNOWN
            try:
                said = await behaviour(read(data), context)
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
                durations.add(time.perf_counter() - began)
                self.metrics.requests.add(name, (context.code() or code).name)

        return answer


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "this server wants a token: metadata authorization, Bearer TOKEN"
    )


_REFUSAL: Final = grpc.stream_stream_rpc_method_handler(_refuse)

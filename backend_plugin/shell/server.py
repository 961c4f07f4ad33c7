"""The process around the services: a port, health, reflection, and an end without haste.

Lives here: how long it lives. Does not: what is answered; whoever composes hands in the handlers.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2

from backend_plugin.core.errors import BackendError
from backend_plugin.shell.front import Front, Handler
from backend_plugin.shell.together import end

_LOG: Final = logging.getLogger(__name__)

FLYTE: Final = "flyteidl.service.AsyncAgentService"
LIVENESS: Final = "liveness"
"""What a prober asks of that wants to know whether the process should be replaced: readiness is the rest."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_STOP: Final = (signal.SIGTERM, signal.SIGINT)
# Probes are answered at once, whoever else is refused; many of them at a time are no probes.
_PROBES: Final = 1_000
# How often is looked whether all calls have ended, when the end has been asked for.
_LOOK_SECONDS: Final = 0.02

_CONNECTIONS: Final = (
    # A second server at the same port is a mistake, and would get every other connection in silence.
    ("grpc.so_reuseport", 0),
    # Propeller keeps one connection for days; what stands between may forget those that are silent.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Whoever has gone without a word is noticed after a minute.
    ("grpc.keepalive_time_ms", 45_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    # Nobody says more about a call than a token and a trace.
    # A connection without a token may open and reset streams as fast as it sends: without a limit of its own
    # it keeps the event loop from answering the others, and probes among them.
    ("grpc.max_concurrent_streams", 256),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 32 * 1024),
)


Settle: TypeAlias = Callable[[float], Coroutine[Any, Any, None]]
"""What is to be done when no call runs any more, told how many seconds of the drain are left."""


async def _nothing(_: float) -> None:
    """Where nothing goes on behind the calls."""


class CannotListen(BackendError):
    """The port is taken, or no address of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where and how is listened."""

    host: str
    port: int
    """0 for any that is free."""
    credentials: grpc.ServerCredentials | None = None
    receive_bytes: int = 12 * 2**20
    """Propeller sends templates whole, and inputs inline, up to its own 10 MB."""
    send_bytes: int = 32 * 2**20
    drain_seconds: float = 20.0
    """How long what runs may go on after the first signal: less than Kubernetes' 30 s of grace."""
    interceptors: "Sequence[grpc.aio.ServerInterceptor[Any, Any]]" = ()


@dataclass(slots=True)
class Server:
    """A gRPC server from its start to its end; used once.

    Args:
        fronts: The services, behind what lets calls in.
        options: Where and how.
    """

    fronts: Sequence[Front]
    options: ServerOptions
    _health: Any = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stop_at_once: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # Not in its stubs.

    async def run(
        self, ready: asyncio.Event, started: Callable[[int], None], settle: Settle = _nothing
    ) -> None:
        """Serve until told to stop, by `stop` or by a signal; a second one ends what still runs.

        `started` is called with the port; health says SERVING from when `ready` is set. At the end calls are
        waited for, then `settle`, which a second signal cancels.

        Raises:
            CannotListen: If the port cannot be had.
        """
        server, port = self._made()
        await self._say(_NOT_SERVING)
        await self._health.set(LIVENESS, _SERVING)
        await server.start()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(server.stop, None)
            started(port)
            undo.pop_all()
        with _signals(self.stop):
            becoming = asyncio.ensure_future(self._become(ready))
            try:
                await self._stop.wait()
            finally:
                becoming.cancel()
                last = asyncio.get_running_loop().time() + self.options.drain_seconds
                await self._drain(server)
                await self._settle(settle, last)

    def stop(self) -> None:
        """Take no more calls, and end when those that run have ended; at once if said twice."""
        if self._stop.is_set():
            self._stop_at_once.set()
        self._stop.set()

    def _made(self) -> tuple[grpc.aio.Server, int]:
        options = self.options
        server = grpc.aio.server(
            interceptors=options.interceptors,
            options=(
                *_CONNECTIONS,
                ("grpc.max_receive_message_length", options.receive_bytes),
                ("grpc.max_send_message_length", options.send_bytes),
            ),
        )
        # First: the others refuse whatever is asked without a token.
        server.add_generic_rpc_handlers((Front((_probed(self._health),), _PROBES), *self.fronts))
        return server, _listening(server, options)

    async def _become(self, ready: asyncio.Event) -> None:
        await ready.wait()
        await self._say(_SERVING)
        _LOG.info("ready")

    async def _say(self, status: int) -> None:
        for service in ("", FLYTE):
            await self._health.set(service, status)

    async def _drain(self, server: grpc.aio.Server) -> None:
        """New calls are refused; those that run may end; streams, which may last for ever, are cut off."""
        await self._say(_NOT_SERVING)
        running = sum(front.running for front in self.fronts)
        _LOG.info("stopping: %d calls run, and have %g s", running, self.options.drain_seconds)
        refusing = asyncio.ensure_future(server.stop(self.options.drain_seconds))
        idle = asyncio.ensure_future(self._idle())
        at_once = asyncio.ensure_future(self._stop_at_once.wait())
        await asyncio.wait((refusing, idle, at_once), return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        at_once.cancel()
        await server.stop(None)
        await refusing

    async def _settle(self, settle: Settle, last: float) -> None:
        left = max(0.0, last - asyncio.get_running_loop().time())
        settling = asyncio.ensure_future(settle(left))
        at_once = asyncio.ensure_future(self._stop_at_once.wait())
        await asyncio.sleep(0)  # What never began could not leave things in order when it is cancelled.
        await asyncio.wait((settling, at_once), return_when=asyncio.FIRST_COMPLETED)
        await end((settling, at_once))
        if not settling.cancelled():
            settling.result()

    async def _idle(self) -> None:
        while any(front.running for front in self.fronts):
            await asyncio.sleep(_LOOK_SECONDS)


def _probed(servicer: Any) -> Handler:
    read, write = health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(servicer.Check, read, write),
        "Watch": grpc.unary_stream_rpc_method_handler(servicer.Watch, read, write),
    }
    return grpc.method_handlers_generic_handler(health.SERVICE_NAME, methods)


def _listening(server: grpc.aio.Server, options: ServerOptions) -> int:
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{host}:{options.port}"
    # gRPC does not say why it cannot, except on stderr.
    if why_not := not_bound(options.host, options.port):
        raise CannotListen(
            f"cannot listen at {address}: {why_not}; write another --port, or 0 for a free one"
        )
    try:
        if options.credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, options.credentials)
    except RuntimeError as error:
        raise CannotListen(f"cannot listen at {address}: it was taken a moment ago") from error


def not_bound(host: str, port: int) -> str | None:
    """Why nothing can listen there at this moment; None if something could."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return None


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for each in _STOP:
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in _STOP:
            loop.remove_signal_handler(each)


class Reflection(Handler):
    """What the server can be asked, for tools that know nothing of it; loaded when one of them asks.

    Args:
        services: Their names, each with the module in which it is described.
    """

    def __init__(self, services: Mapping[str, str]) -> None:
        self._services = services
        self._loaded: Any = None

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a method, as grpc asks for it; None if there is none of that name."""
        if not handler_call_details.method.startswith("/grpc.reflection.v1alpha."):
            return None
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded.service(handler_call_details)

    def _load(self) -> Any:
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        for module in self._services.values():
            import_module(module)
        services = (*self._services, reflection.SERVICE_NAME)
        servicer = reflection.aio.ReflectionServicer(services)  # type: ignore[attr-defined]
        return grpc.method_handlers_generic_handler(
            reflection.SERVICE_NAME,
            {
                "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                    servicer.ServerReflectionInfo,
                    reflection_pb2.ServerReflectionRequest.FromString,
                    reflection_pb2.ServerReflectionResponse.SerializeToString,
                )
            },
        )

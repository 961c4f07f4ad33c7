"""The gRPC server: its port, health service, reflection, signals and graceful shutdown."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2

from backend_plugin.core.errors import BackendError
from backend_plugin.shell.rpc_handlers import Handler
from backend_plugin.shell.rpc_middleware import RpcMiddleware
from backend_plugin.shell.stop_signals import list_stop_signals
from backend_plugin.shell.together import cancel_and_wait

_LOG: Final = logging.getLogger(__name__)

FLYTE: Final = "flyteidl.service.AsyncAgentService"
LIVENESS: Final = "liveness"
"""The health service name for liveness probes; the other names report readiness."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
# Probes have a limit of their own, so that they succeed while other calls are rejected.
_PROBES: Final = 1_000
# Interval in which the drain checks for running calls.
_LOOK_SECONDS: Final = 0.02

_CONNECTIONS: Final = (
    # A second server must not share the port, or it would receive part of the connections.
    ("grpc.so_reuseport", 0),
    # FlytePropeller keeps a connection for days, and proxies drop idle connections.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Detect within a minute that a client is gone without closing its connection.
    ("grpc.keepalive_time_ms", 45_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    # A client without a token can open and reset streams as fast as it can send. Without this limit it would
    # keep the event loop from serving others, including probes.
    ("grpc.max_concurrent_streams", 256),
    # By default gRPC rejects random calls, including probes, if more than 1,000 wait. Four connections can
    # send that many.
    ("grpc.server.max_pending_requests", 3_000),
    # Clients send no more metadata than a token and a trace context.
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 32 * 1024),
)


Settle: TypeAlias = Callable[[float], Coroutine[Any, Any, None]]
"""A function that is called after the last gRPC call has ended, with the seconds that remain for shutdown."""


class PortUnavailable(BackendError):
    """The port is in use, or the host is not an address of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The address, limits and credentials of a server."""

    host: str
    port: int
    """The port; 0 selects a free port."""
    receive_bytes: int
    """Maximum size of a request in bytes."""
    send_bytes: int
    """Maximum size of a response in bytes."""
    drain_seconds: float
    """Seconds for which running calls may continue after the first stop signal."""
    credentials: grpc.ServerCredentials | None = None
    interceptors: "Sequence[grpc.aio.ServerInterceptor[Any, Any]]" = ()


@dataclass(slots=True)
class GrpcServer:
    """A gRPC server; an instance can run only once."""

    fronts: Sequence[RpcMiddleware]
    options: ServerOptions
    _health: Any = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stop_at_once: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # Missing in its stubs.

    async def run(self, ready: asyncio.Event, started: Callable[[int], None], settle: Settle) -> None:
        """Serve until `stop` is called or a signal arrives; wait up to `drain_seconds` for running calls.

        A second call of `stop` or a second signal ends the wait and cancels `settle`. Even then, `settle` is
        started first, because only a coroutine that has started can clean up.

        Args:
            ready: The health service reports SERVING once this is set.
            started: Called with the port as soon as the server accepts calls.
            settle: Called after the wait, with the seconds that remain of `drain_seconds`.

        Raises:
            PortUnavailable: If the port cannot be opened.
        """
        server, port = self._create_server()
        await self._set_health(_NOT_SERVING)
        await self._health.set(LIVENESS, _SERVING)
        await server.start()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(server.stop, None)
            started(port)
            undo.pop_all()
        with _handle_signals(self.stop):
            becoming = asyncio.ensure_future(self._report_ready(ready))
            try:
                await self._stop.wait()
            finally:
                becoming.cancel()
                last = asyncio.get_running_loop().time() + self.options.drain_seconds
                await self._drain(server)
                await self._run_cleanup(settle, last)

    def stop(self) -> None:
        """Reject new calls and end `run` after the running calls; a second call ends `run` immediately."""
        if self._stop.is_set():
            self._stop_at_once.set()
        self._stop.set()

    def _create_server(self) -> tuple[grpc.aio.Server, int]:
        options = self.options
        server = grpc.aio.server(
            interceptors=options.interceptors,
            options=(
                *_CONNECTIONS,
                ("grpc.max_receive_message_length", options.receive_bytes),
                ("grpc.max_send_message_length", options.send_bytes),
            ),
        )
        # The health service comes first, because the other handlers reject all calls without a token.
        server.add_generic_rpc_handlers(
            (RpcMiddleware((_build_health_handler(self._health),), _PROBES), *self.fronts)
        )
        return server, _open_port(server, options)

    async def _report_ready(self, ready: asyncio.Event) -> None:
        await ready.wait()
        await self._set_health(_SERVING)
        _LOG.info("ready")

    async def _set_health(self, status: int) -> None:
        for service in ("", FLYTE):
            await self._health.set(service, status)

    async def _drain(self, server: grpc.aio.Server) -> None:
        """Reject new calls, wait for the running ones, then cancel streams, which may last forever."""
        await self._set_health(_NOT_SERVING)
        running, grace = sum(front.running for front in self.fronts), self.options.drain_seconds
        _LOG.info("stopping: %d calls are in progress, with a grace period of %g s", running, grace)
        refusing = asyncio.ensure_future(server.stop(grace))
        idle = asyncio.ensure_future(self._wait_until_idle())
        at_once = asyncio.ensure_future(self._stop_at_once.wait())
        await asyncio.wait((refusing, idle, at_once), return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        at_once.cancel()
        await server.stop(None)
        await refusing

    async def _run_cleanup(self, settle: Settle, last: float) -> None:
        left = max(0.0, last - asyncio.get_running_loop().time())
        settling = asyncio.ensure_future(settle(left))
        at_once = asyncio.ensure_future(self._stop_at_once.wait())
        # Let the task start, because a task that has not started cannot clean up when it is cancelled.
        await asyncio.sleep(0)
        await asyncio.wait((settling, at_once), return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait((settling, at_once))
        if not settling.cancelled():
            settling.result()

    async def _wait_until_idle(self) -> None:
        while any(front.running for front in self.fronts):
            await asyncio.sleep(_LOOK_SECONDS)


def _build_health_handler(servicer: Any) -> Handler:
    read, write = health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(servicer.Check, read, write),
        "Watch": grpc.unary_stream_rpc_method_handler(servicer.Watch, read, write),
    }
    return grpc.method_handlers_generic_handler(health.SERVICE_NAME, methods)


def _open_port(server: grpc.aio.Server, options: ServerOptions) -> int:
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{host}:{options.port}"
    # gRPC reports the reason of a failure only on stderr.
    if why_not := find_bind_error(options.host, options.port):
        raise PortUnavailable(
            f"cannot listen on {address}: {why_not}; set another --port, or 0 for a free one"
        )
    try:
        if options.credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, options.credentials)
    except RuntimeError as error:
        raise PortUnavailable(f"cannot listen on {address}: another process took it a moment ago") from error


def find_bind_error(host: str, port: int) -> str | None:
    """Return the reason why the address cannot be bound; None if it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return None


@contextmanager
def _handle_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals = list_stop_signals()
    for each in signals:
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)

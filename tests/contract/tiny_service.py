"""A minimal gRPC service, a server for it, and functions that wait."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.rpc_handlers import build_reflection_handler
from backend_plugin.shell.rpc_middleware import REQUEST_BYTES, RpcMiddleware
from backend_plugin.shell.server import GrpcServer, ServerOptions
from backend_plugin.shell.settings import SettingsSources, load_settings


class Tiny:
    """`Say` echoes, `Wait` waits for `go_on`, `Count` never ends, and `Refuse` fails."""

    def __init__(self):
        self.waiting = 0
        self.go_on = asyncio.Event()

    async def say(self, request, context):
        return request

    async def wait(self, request, context):
        self.waiting += 1
        await self.go_on.wait()
        return request

    async def count(self, request, context):
        yield b"1"
        await asyncio.Event().wait()

    async def refuse(self, request, context):
        await context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")
        raise AssertionError

    def handlers(self):
        unary = grpc.unary_unary_rpc_method_handler
        words = {
            "Say": unary(self.say),
            "Wait": unary(self.wait),
            "Refuse": unary(self.refuse),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
        }
        return [grpc.method_handlers_generic_handler("tiny.Tiny", words)]


@dataclass
class TinyServed:
    tiny: Tiny
    server: GrpcServer
    metrics: Metrics
    ready: asyncio.Event
    address: str

    async def echo(self, channel, word=b"hello", **options):
        return await call(channel, "Say", word, **options)


async def call(channel, method, word=b"", **options):
    return await channel.unary_unary(f"/tiny.Tiny/{method}")(word, timeout=60, **options)  # type: ignore[no-any-return]


async def health(channel, service=""):
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def build_options(**options):
    """Return `options` for a server at a free port, with the message sizes of the settings by default."""
    settings = load_settings(SettingsSources()).settings
    sizes = {"receive_bytes": settings.max_receive_message_size, "send_bytes": settings.max_send_message_size}
    return ServerOptions(**{"host": "127.0.0.1", "port": 0, **sizes, **options})


@asynccontextmanager
async def serving(*, limit=10, streams=10, token=None, **options):
    """Run a server, and stop it immediately on exit."""
    tiny, metrics, ready = Tiny(), Metrics(), asyncio.Event()
    limits = {
        "request_bytes": options.pop("request_bytes", REQUEST_BYTES),
        "client_names": options.pop("client_names", frozenset()),
    }
    handlers = (*tiny.handlers(), build_reflection_handler(["grpc.health.v1.Health"]))
    front = RpcMiddleware(handlers, limit, token, metrics, streams, **limits)
    server = GrpcServer((front,), build_options(**{"drain_seconds": 10, **options}))
    port = asyncio.get_running_loop().create_future()
    life = asyncio.ensure_future(server.run(ready, port.set_result, do_nothing))
    await asyncio.wait((life, port), return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        life.result()
    try:
        yield TinyServed(tiny, server, metrics, ready, f"127.0.0.1:{port.result()}")
    finally:
        server.stop()
        server.stop()
        await life


@asynccontextmanager
async def calling(**options):
    async with serving(**options) as served, grpc.aio.insecure_channel(served.address) as channel:
        yield served, channel


async def wait_until(true, seconds=60):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        result = true()
        if result if isinstance(result, bool) else await result:
            return
        assert loop.time() < deadline, "it did not come about"
        await asyncio.sleep(0.01)


async def code_of(answer):
    """Return the status code and details of a call that must fail."""
    try:
        await answer
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("it was answered")


async def is_answered(answer):
    try:
        await answer
    except grpc.aio.AioRpcError:
        return False
    return True


async def do_nothing(_):
    """Return at once: there is no work outside calls."""

"""gRPC connections to a running server, with the credentials of the caller and messages for failed calls."""

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.message import Message

from backend_plugin.client_calls import UNARY_SECONDS, Answer, build_method
from backend_plugin.request_errors import explain
from backend_plugin.server_address import TLS, Address, Server
from backend_plugin.server_selection import find_server, read_file

if TYPE_CHECKING:
    import grpc

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]


@contextmanager
def open_channel(server: Address) -> Iterator[tuple["grpc.Channel", Metadata]]:
    """Yield a channel to the server, and the metadata to send with each call.

    Raises:
        RequestFailed: If the connection or a call within the context fails.
    """
    import grpc

    resolved = find_server(server)
    with _create_channel(resolved, grpc) as channel:
        try:
            yield channel, _build_metadata(resolved)
        except grpc.RpcError as error:
            raise explain(error, resolved) from error


def send(request: Message, answer: type[Answer], server: Address, seconds: float = UNARY_SECONDS) -> Answer:
    """Return the response to a request; raise `RequestFailed` if the call fails."""
    with open_channel(server) as (channel, metadata):
        method = channel.unary_unary(**build_method(request, answer))
        response: Answer = method(request, metadata=metadata, timeout=seconds)
        return response


def stream(
    request: Message, answer: type[Answer], server: Address, seconds: float | None = None
) -> Generator[Answer, None, None]:
    """Yield the responses to a request; the call is cancelled when the generator is closed.

    Raises:
        RequestFailed: If the call fails.
    """
    with open_channel(server) as (channel, metadata):
        method: Any = channel.unary_stream(**build_method(request, answer))
        responses = method(request, metadata=metadata, timeout=seconds)
        try:
            yield from responses
        finally:
            responses.cancel()


@asynccontextmanager
async def open_async_channel(server: Address) -> AsyncIterator[tuple["grpc.aio.Channel", Metadata]]:
    """Yield an asyncio channel to the server, and the metadata to send with each call.

    Raises:
        RequestFailed: If the connection or a call within the context fails.
    """
    import asyncio

    import grpc

    resolved = find_server(server)
    async with _create_channel(resolved, grpc.aio) as channel:
        try:
            yield channel, _build_metadata(resolved)
        except grpc.RpcError as error:
            # `explain` may open another connection, which would block the event loop.
            raise await asyncio.to_thread(explain, error, resolved) from error


def _build_metadata(server: Server) -> Metadata:
    return (("authorization", f"Bearer {server.token}"),) if server.token else ()


def _create_channel(server: Server, library: Any) -> Any:
    """Return a new channel from `library`, which is `grpc` or `grpc.aio`."""
    # Proxy variables of the environment do not apply to a server that the user names.
    options: list[tuple[str, int | str]] = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", -1),
    ]
    if server.tls_server_name:
        options.append(("grpc.ssl_target_name_override", server.tls_server_name))
    endpoint = str(server.address)
    if endpoint.startswith(TLS):
        target = endpoint.removeprefix(TLS)
        return library.secure_channel(target, _build_credentials(server), options=options)
    return library.insecure_channel(endpoint, options=options)


def _build_credentials(server: Server) -> "grpc.ChannelCredentials":
    import grpc

    what = {"ca": "the certificate of", "cert": "the certificate for", "key": "the key for"}
    read = {
        name: read_file(file, f"{text} {server.address}")
        for name, text in what.items()
        if (file := getattr(server, name))
    }
    return grpc.ssl_channel_credentials(read.get("ca"), read.get("key"), read.get("cert"))

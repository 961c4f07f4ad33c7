"""A gRPC connection to a running server, with the credentials of the caller and messages for its failures."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.shell import bounded_read, server_file, tls_diagnosis
from backend_plugin.shell.tls_diagnosis import Diagnosis, Endpoint, TlsFailure

if TYPE_CHECKING:
    import grpc

SERVER: Final = "KFPYTORCH_SERVER"
"""The variable with the server address: ``HOST:PORT``, or ``grpcs://HOST:PORT`` for one with TLS."""
TOKEN: Final = "KFPYTORCH_TOKEN"  # noqa: S105 - a variable's name.
"""The variable with the access token of the server."""
FILES: Final[Mapping[str, str]] = {
    "ca": "KFPYTORCH_CA",
    "cert": "KFPYTORCH_CERT",
    "key": "KFPYTORCH_KEY",
    "tls_server_name": "KFPYTORCH_TLS_SERVER_NAME",
}
"""The variables for the fields of `Server` that configure TLS."""

_START: Final = "start one: kfpytorch serve --cluster embedded"
# The details of gRPC errors: an unimplemented method, and an unreachable server.
_NO_METHOD: Final = "Method not found!"
_NO_CONNECTION: Final = "failed to connect to all addresses"
# Status codes with details that are a complete message for the user.
_EXPLAINED: Final = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server, and the credentials of the caller. The environment has the defaults of all fields."""

    address: str | None = None
    """``HOST:PORT``, ``grpcs://HOST:PORT`` for TLS, or the state directory of a local server."""
    token: str = ""
    ca: str = ""
    """A PEM file with the authority of the server's certificate; empty for the system's authorities."""
    cert: str = ""
    """A PEM file with the certificate of the caller, for a server that requires one."""
    key: str = ""
    """A PEM file with the key of `cert`."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it differs from the address."""


Address: TypeAlias = Server | str | None
"""A server, its address, or None for the default server."""


class RequestFailed(BackendError):
    """The error that a request has no result; the message contains the reason and the remedy."""


class ServerNotFound(RequestFailed):
    """The error that no server runs or is reachable."""


class TokenRejected(RequestFailed):
    """The error that the server does not accept the token, or that the token is malformed."""


class MethodNotFound(RequestFailed):
    """The error that the server does not have the method."""


class DeadlineExceeded(RequestFailed):
    """The error that the call did not end within its timeout."""


class NotFound(RequestFailed):
    """The error that no job has the name; the message contains similar names."""


@contextmanager
def open_channel(server: Address) -> Iterator[tuple["grpc.Channel", Metadata]]:
    """Yield a channel to the server and the metadata of each call.

    Raises:
        RequestFailed: If the connection or a call within the context fails.
    """
    import grpc

    resolved = find_server(server)
    with _create_channel(resolved, grpc) as channel:
        try:
            yield channel, _build_metadata(resolved)
        except grpc.RpcError as error:
            raise _explain(error, resolved) from error


@asynccontextmanager
async def open_async_channel(server: Address) -> AsyncIterator[tuple["grpc.aio.Channel", Metadata]]:
    """Yield a channel for asyncio to the server, and the metadata of each call.

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
            # The explanation may open a connection.
            raise await asyncio.to_thread(_explain, error, resolved) from error


def _build_metadata(server: Server) -> Metadata:
    return (("authorization", f"Bearer {server.token}"),) if server.token else ()


def _create_channel(server: Server, library: Any) -> Any:
    """Return a new channel from one of gRPC's two modules with channels."""
    # Proxy variables of the environment do not apply to a server that the user names.
    options: list[tuple[str, int | str]] = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", -1),
    ]
    if server.tls_server_name:
        options.append(("grpc.ssl_target_name_override", server.tls_server_name))
    endpoint = str(server.address)
    if endpoint.startswith(tls_diagnosis.TLS):
        target = endpoint.removeprefix(tls_diagnosis.TLS)
        return library.secure_channel(target, _build_credentials(server), options=options)
    return library.insecure_channel(endpoint, options=options)


def is_address(text: str) -> bool:
    """True if the text is a host and port, a path, or an address in a form of gRPC, such as ``unix:///``."""
    return (
        Path(text).is_dir()
        or "/" in text.removeprefix(tls_diagnosis.TLS)
        or tls_diagnosis.parse_endpoint(text) is not None
    )


def find_server(server: Address) -> Server:
    """Return the server to call, with its address and all credentials.

    Raises:
        ServerNotFound: If no server is named and none runs.
    """
    requested = server if isinstance(server, Server) else Server(address=server)
    named = requested.address or os.environ.get(SERVER)
    is_state = named is not None and Path(named).is_dir()
    state = Path(named) if named is not None and is_state else server_file.get_state_directory(os.environ)
    running = server_file.read(state)
    if named is not None and not is_state:
        if running is None or running.endpoint != named:
            return _with_tls(_with_environment(replace(requested, address=named)))
        # The local server by its address: its token and certificate still apply.
        return _with_local(
            replace(requested, token=requested.token or _parse_token(os.environ.get(TOKEN, ""), TOKEN)),
            running,
        )
    where = server_file.get_path(state)
    if running is None:
        raise ServerNotFound(
            f"no server runs here ({where} lists none); {_START}\n"
            f"  or name one: --server HOST:PORT, or {SERVER} in the environment"
        )
    if not server_file.is_alive(running):
        raise ServerNotFound(
            f"the server in {where} has stopped: there is no process {running.pid}; {_START}"
        )
    return _with_local(requested, running)


def _with_environment(server: Server) -> Server:
    files = {name: getattr(server, name) or os.environ.get(variable, "") for name, variable in FILES.items()}
    token = _parse_token(server.token, "--token") or _parse_token(os.environ.get(TOKEN, ""), TOKEN)
    return replace(server, token=token, **files)


def _with_tls(server: Server) -> Server:
    """Return the server with the scheme for TLS if a file for TLS is set."""
    for one, other in (("cert", "key"), ("key", "cert")):
        if getattr(server, one) and not getattr(server, other):
            raise RequestFailed(
                f"--{one} {getattr(server, one)} has no effect without --{other}; "
                f"write --{other} FILE, or set {FILES[other]}"
            )
    address = str(server.address)
    if (server.ca or server.cert) and not address.startswith(tls_diagnosis.TLS):
        return replace(server, address=f"{tls_diagnosis.TLS}{address}")
    return server


def _with_local(server: Server, running: server_file.ServerInfo) -> Server:
    """Return the server that runs on this machine; its file has the credentials that the caller omits."""
    token = _parse_token(server.token, "--token") or running.token
    if not token and running.token_file:
        text = _read_file(running.token_file, f"the token of {running.endpoint}").decode(errors="replace")
        token = _parse_token(text, running.token_file)
    return _with_tls(replace(server, address=running.endpoint, token=token, ca=server.ca or running.roots))


def _build_credentials(server: Server) -> "grpc.ChannelCredentials":
    import grpc

    what = {"ca": "the certificate of", "cert": "the certificate for", "key": "the key for"}
    read = {
        name: _read_file(file, f"{text} {server.address}")
        for name, text in what.items()
        if (file := getattr(server, name))
    }
    return grpc.ssl_channel_credentials(read.get("ca"), read.get("key"), read.get("cert"))


def _read_file(file: str, what: str) -> bytes:
    try:
        return bounded_read.read_file(Path(file), bounded_read.LONGEST_SECRET)
    except OSError as error:
        raise RequestFailed(f"{what} cannot be read: {file}: {error.strerror}") from error


def _parse_token(text: str, where: str) -> str:
    """Return a token without a trailing newline."""
    token = text.strip()
    if not (token.isascii() and token.isprintable()):
        raise TokenRejected(f"{where} does not contain a token: a token has only printable ASCII characters")
    return token


# ---- errors


def _explain(error: "grpc.RpcError", server: Server) -> RequestFailed:
    call: Any = error
    code, details = call.code().name, call.details() or ""
    endpoint = server.address
    if code == "UNAUTHENTICATED":
        where = server_file.get_path(server_file.get_state_directory(os.environ))
        return TokenRejected(
            f"the server at {endpoint} rejects the token; the user who started it finds it in {where}, "
            f"other users pass --token or set {TOKEN}"
        )
    if code == "UNAVAILABLE" and (reason := _explain_connection(server, details)):
        return ServerNotFound(reason)
    if code == "UNIMPLEMENTED" and details == _NO_METHOD:
        return MethodNotFound(
            f"the server at {endpoint} does not support this call; is it of another release?"
        )
    if code == "NOT_FOUND":
        return NotFound(details)
    if code in _EXPLAINED:
        return RequestFailed(details)
    kind = DeadlineExceeded if code == "DEADLINE_EXCEEDED" else RequestFailed
    return kind(f"the server at {endpoint} returned {code}: {details}")


def _explain_connection(server: Server, details: str) -> str | None:
    """Return the reason and the remedy of a failed connection, or None if the server was reached."""
    address = str(server.address)
    otherwise = f"no server answers at {address}; {_START}" if _NO_CONNECTION in details else None
    if "/" in address.removeprefix(tls_diagnosis.TLS):  # Another scheme of gRPC, such as dns:///host:port.
        return otherwise
    end = tls_diagnosis.parse_endpoint(
        address, ca=server.ca, cert=server.cert, key=server.key, server_name=server.tls_server_name
    )
    if end is None:
        return f"{address} has no port; write HOST:PORT, or grpcs://HOST:PORT for a server with TLS"
    known = tls_diagnosis.diagnose(end)
    if known is None or known.failure is TlsFailure.NOT_LISTENING:
        return otherwise
    return f"the server at {address} {tls_diagnosis.describe(end, known)}; {_build_remedy(end, known)}"


def _build_remedy(end: Endpoint, known: Diagnosis) -> str:
    usable = next((each for each in known.names if "*" not in each), "NAME")
    return {
        TlsFailure.UNKNOWN_HOST: "write the name or address of the server",
        TlsFailure.TIMEOUT: "see that the address is right, and that no firewall or NetworkPolicy is in "
        "between",
        TlsFailure.NEEDS_TLS: f"write --server {tls_diagnosis.TLS}{end}",
        TlsFailure.NO_TLS: f"write --server {end}, without --ca and --cert",
        TlsFailure.UNUSABLE_FILE: "name a PEM file, and for --cert the key that belongs to it",
        TlsFailure.UNTRUSTED: f"name the file of its authority: --ca FILE, or set {FILES['ca']}",
        TlsFailure.WRONG_NAME: f"write --tls-server-name {usable}, or issue it for this name, too",
        TlsFailure.EXPIRED: "renew it, and see that the clock of this machine is right",
        TlsFailure.CLIENT_CERTIFICATE: "use one of the authority in the server's setting tls.client-ca"
        if known.file
        else f"write --cert FILE --key FILE, or set {FILES['cert']} and {FILES['key']}",
    }[known.failure]

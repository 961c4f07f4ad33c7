"""The errors of requests to a server, and the conversion of a gRPC error to one of these errors."""

import os
from typing import TYPE_CHECKING, Any, Final

from backend_plugin import tls_diagnosis
from backend_plugin.core.errors import BackendError
from backend_plugin.server_address import START_HINT, TOKEN, Server
from backend_plugin.shell import server_file

if TYPE_CHECKING:
    import grpc

# The details of gRPC errors: an unimplemented method, and an unreachable server.
_NO_METHOD: Final = "Method not found!"
_NO_CONNECTION: Final = "failed to connect to all addresses"
_COMPLETE: Final = frozenset(
    {"NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
)
"""The gRPC status codes with which the error details are a complete message for the user."""


class RequestFailed(BackendError):
    """The error of a failed request; the message contains the reason and a remedy."""


class ServerNotFound(RequestFailed):
    """Raised if no server runs, or if the server is not reachable."""


class TokenRejected(RequestFailed):
    """Raised if the server does not accept the token, or if the token is malformed."""


class MethodNotFound(RequestFailed):
    """Raised if the gRPC server does not implement the called method."""


class DeadlineExceeded(RequestFailed):
    """Raised if a call did not end within its timeout."""


class NotFound(RequestFailed):
    """Raised if no job or runtime has the requested name; the message suggests other names."""


_KINDS: Final = {"NOT_FOUND": NotFound, "DEADLINE_EXCEEDED": DeadlineExceeded}


def explain(error: "grpc.RpcError", server: Server) -> RequestFailed:
    """Return the error to show to the user; if the server is unreachable, connect again to find out why."""
    call: Any = error
    code, details = call.code().name, call.details() or ""
    where = f"the server at {server.address}"
    match code:
        case "UNAUTHENTICATED":
            file = server_file.get_path(server_file.get_state_directory(os.environ))
            return TokenRejected(
                f"{where} rejects the token; the user who started the server finds the token in {file.name} "
                f"in the server's state directory, by default {file}; other users pass --token or set {TOKEN}"
            )
        case "UNIMPLEMENTED" if details == _NO_METHOD:
            return MethodNotFound(f"{where} does not support this call; is it of another release?")
        case "UNAVAILABLE" if reason := _describe_connection_failure(server, details):
            return ServerNotFound(reason)
    kind = _KINDS.get(code, RequestFailed)
    return kind(details if code in _COMPLETE else f"{where} returned {code}: {details}")


def _describe_connection_failure(server: Server, details: str) -> str | None:
    """Return the reason and the remedy of a failed connection, or None if the server was reached."""
    if problem := tls_diagnosis.diagnose(server):
        return f"the server at {server.address} {problem}"
    return f"no server answers at {server.address}; {START_HINT}" if _NO_CONNECTION in details else None

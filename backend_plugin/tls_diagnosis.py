"""The reason why a connection to a server fails: no listener, TLS on one side only, a wrong certificate.

gRPC reports all these errors with one message, so this module repeats the connection after gRPC has failed.
"""

import enum
import os
import socket
import ssl
from dataclasses import replace
from typing import Any, Final, NamedTuple

from backend_plugin.server_address import TLS, Server, split_address

ROOTS: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""gRPC's environment variable for a file with the CAs that all its clients trust."""
SECONDS: Final = 5.0
"""Timeout for a connection in seconds."""
_ALERT: Final = 1.0
"""Seconds to wait for an alert: with TLS 1.3, a server checks the client certificate after the handshake."""
_NAMES: Final = frozenset({62, 64})
"""OpenSSL's error codes for a certificate of another host name or address."""
_TIMES: Final = frozenset({9, 10})
_NO_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "UNKNOWN_PROTOCOL",
    }
)
"""OpenSSL's reasons for a reply that is not TLS; they differ between versions."""


class TlsFailure(enum.Enum):
    """The reason why a connection fails."""

    NO_PORT = enum.auto()
    UNKNOWN_HOST = enum.auto()
    TIMEOUT = enum.auto()
    NOT_LISTENING = enum.auto()
    NEEDS_TLS = enum.auto()
    """The server uses TLS, and the address does not."""
    NO_TLS = enum.auto()
    """The address uses TLS, and the server does not."""
    UNUSABLE_FILE = enum.auto()
    """A file of the caller does not contain the certificate or key in PEM that it must contain."""
    UNTRUSTED = enum.auto()
    WRONG_NAME = enum.auto()
    EXPIRED = enum.auto()
    """The certificate of the server is not valid yet or not valid any more."""
    NO_CLIENT_CERTIFICATE = enum.auto()
    """The server requires a certificate of the caller, and received none."""
    CLIENT_CERTIFICATE = enum.auto()
    """The server does not accept the certificate of the caller."""


class Diagnosis(NamedTuple):
    """The reason why a connection fails, with the details that a message needs."""

    failure: TlsFailure
    trouble: str
    """The failure as a predicate that follows the name of the server in a message."""
    target: str = ""
    """The address without ``grpcs://``; an IPv6 address is in brackets."""
    usable_name: str = "NAME"
    """If the name is wrong: a name in the server's certificate, or a placeholder."""


def diagnose(server: Server) -> Diagnosis | None:
    """Return why a connection to the server fails, or None if this cannot be determined."""
    written = str(server.address)
    if "/" in written.removeprefix(TLS):  # Another scheme of gRPC, such as dns:///host:port.
        return None
    address = split_address(written)
    if address is None:
        return Diagnosis(TlsFailure.NO_PORT, "has no port", target=written)
    host, port = address
    server = replace(
        server, ca=server.ca or os.environ.get(ROOTS, ""), tls_server_name=server.tls_server_name or host
    )
    found = _try_port(address)
    if found is None and written.startswith(TLS):
        found = _find_unusable_file(server) or _try_tls(server, address)
    elif found is None:
        found = _try_plain(server, address)
    return found and found._replace(target=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _try_port(address: tuple[str, int]) -> Diagnosis | None:
    try:
        socket.create_connection(address, SECONDS).close()
    except (socket.gaierror, UnicodeError):  # UnicodeError: not a valid host name, such as a..b
        return Diagnosis(TlsFailure.UNKNOWN_HOST, f"cannot be resolved: the DNS has no {address[0]}")
    except TimeoutError:
        return Diagnosis(TlsFailure.TIMEOUT, f"accepts no connection within {SECONDS:g} s")
    except OSError as error:
        return Diagnosis(TlsFailure.NOT_LISTENING, f"is a port without a listener: {error.strerror}")
    return None


def _try_plain(server: Server, address: tuple[str, int]) -> Diagnosis | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        _perform_handshake(server, address, context)
    except _ConnectionClosed:
        pass
    except OSError:
        return None
    return Diagnosis(TlsFailure.NEEDS_TLS, "requires TLS, and the call used none")


def _find_unusable_file(server: Server) -> Diagnosis | None:
    for file, load in ((server.ca, _build_context), (server.cert, _load_certificate)):
        try:
            load(server)
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or "not PEM"
            detail = reason.lower().replace("_", " ") if isinstance(error, ssl.SSLError) else reason
            return Diagnosis(
                TlsFailure.UNUSABLE_FILE, f"cannot be tried with TLS: {file} cannot be used: {detail}"
            )
    return None


def _try_tls(server: Server, address: tuple[str, int]) -> Diagnosis | None:
    try:
        _perform_handshake(server, address, _load_certificate(server))
    except ssl.SSLCertVerificationError as error:
        return _judge_certificate(server, address, error)
    except _ConnectionClosed:
        if not server.cert:
            return Diagnosis(TlsFailure.NO_CLIENT_CERTIFICATE, "requires a certificate of its clients")
        trouble = f"does not accept the certificate in {server.cert}"
        return Diagnosis(TlsFailure.CLIENT_CERTIFICATE, trouble)
    except OSError as error:
        # A connection reset or a timeout does not show whether the server uses TLS.
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            return Diagnosis(TlsFailure.NO_TLS, "does not use TLS, and the call used it")
    return None


def _judge_certificate(
    server: Server, address: tuple[str, int], error: ssl.SSLCertVerificationError
) -> Diagnosis:
    if error.verify_code in _NAMES:
        names = _read_names(server, address)
        trouble = f"has a certificate for {', '.join(names) or 'no host'}, not for {server.tls_server_name}"
        usable = next((each for each in names if "*" not in each), "NAME")
        return Diagnosis(TlsFailure.WRONG_NAME, trouble, usable_name=usable)
    if error.verify_code in _TIMES:
        failure, why = TlsFailure.EXPIRED, "that is not valid now"
    else:
        failure, why = TlsFailure.UNTRUSTED, "from a CA that is not trusted here"
    return Diagnosis(failure, f"has a certificate {why}: {error.verify_message}")


def _read_names(server: Server, address: tuple[str, int]) -> tuple[str, ...]:
    """Return the names in the server's certificate; ``()`` if it is not trusted or the connection fails."""
    context = _load_certificate(server)
    context.check_hostname = False
    try:
        certificate: Any = _perform_handshake(server, address, context)
    except (_ConnectionClosed, OSError):
        return ()
    return tuple(str(name) for _, name in certificate.get("subjectAltName", ()))


class _ConnectionClosed(Exception):
    """The server closed the connection after the handshake."""


def _perform_handshake(server: Server, address: tuple[str, int], context: ssl.SSLContext) -> object:
    """Perform a TLS handshake, and return the certificate of the server if the context verifies it.

    Raise `_ConnectionClosed` if the server closes the connection after the handshake.
    """
    with (
        socket.create_connection(address, SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=server.tls_server_name) as secured,
    ):
        certificate = secured.getpeercert()
        secured.settimeout(_ALERT)
        try:
            received = secured.recv(1)
        except TimeoutError:
            return certificate  # The server waits for a request.
        except OSError as error:
            raise _ConnectionClosed from error
        if not received:
            raise _ConnectionClosed
        return certificate


def _build_context(server: Server) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca or None)
    # As in gRPC, a trusted certificate does not need a trusted issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context


def _load_certificate(server: Server) -> ssl.SSLContext:
    context = _build_context(server)
    if server.cert:
        context.load_cert_chain(server.cert, server.key)
    return context

"""The reason why a connection to a server fails: no listener, TLS on one side only, a wrong certificate.

gRPC reports all these errors with one message, so this module repeats the connection after gRPC has failed.
"""

import enum
import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

TLS: Final = "grpcs://"
"""The scheme of an address with TLS."""
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
    CLIENT_CERTIFICATE = enum.auto()
    """The server requires a certificate of the caller, or does not accept the one that it received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address, and the caller's files for TLS."""

    host: str
    port: int
    tls: bool
    ca: str = ""
    """The file with the trusted CAs; empty for the CAs of the system."""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    """The expected name in the server's certificate; empty for the host."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The reason why a connection fails, with the details that a message needs."""

    failure: TlsFailure
    detail: str = ""
    """The error text of the operating system or of OpenSSL."""
    file: str = ""
    names: tuple[str, ...] = ()
    """The names in the server's certificate."""


def describe(end: Endpoint, diagnosis: Diagnosis) -> str:
    """Return the failure as a predicate that follows the name of the server in a message."""
    if diagnosis.failure is TlsFailure.CLIENT_CERTIFICATE and diagnosis.file:
        return f"does not accept the certificate in {diagnosis.file}"
    names = ", ".join(diagnosis.names) or "no host"
    return {
        TlsFailure.UNKNOWN_HOST: f"cannot be resolved: the DNS has no {end.host}",
        TlsFailure.TIMEOUT: f"accepts no connection within {SECONDS:g} s",
        TlsFailure.NOT_LISTENING: f"is a port without a listener: {diagnosis.detail}",
        TlsFailure.NEEDS_TLS: "requires TLS, and the call used none",
        TlsFailure.NO_TLS: "does not use TLS, and the call used it",
        TlsFailure.UNUSABLE_FILE: (
            f"cannot be tried with TLS: {diagnosis.file} cannot be used: {diagnosis.detail}"
        ),
        TlsFailure.UNTRUSTED: f"has a certificate from a CA that is not trusted here: {diagnosis.detail}",
        TlsFailure.WRONG_NAME: f"has a certificate for {names}, not for {end.server_name or end.host}",
        TlsFailure.EXPIRED: f"has a certificate that is not valid now: {diagnosis.detail}",
        TlsFailure.CLIENT_CERTIFICATE: "requires a certificate of its clients",
    }[diagnosis.failure]


def parse_endpoint(
    address: str, *, ca: str = "", cert: str = "", key: str = "", server_name: str = ""
) -> Endpoint | None:
    """Return the parts of ``HOST:PORT`` or ``grpcs://HOST:PORT``; None if host or port is invalid."""
    host, _, port = address.removeprefix(TLS).rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 65_536):
        return None
    trusted = ca or os.environ.get(ROOTS, "")
    return Endpoint(
        host=host.strip("[]"),
        port=int(port),
        tls=address.startswith(TLS),
        ca=trusted,
        cert=cert,
        key=key,
        server_name=server_name,
    )


def diagnose(end: Endpoint) -> Diagnosis | None:
    """Return why a connection fails, or None if this cannot be determined."""
    if not end.tls:
        return _try_port(end) or _try_plain(end)
    return _try_port(end) or _find_unusable_file(end) or _try_tls(end)


def _try_port(end: Endpoint) -> Diagnosis | None:
    try:
        socket.create_connection((end.host, end.port), SECONDS).close()
    except (socket.gaierror, UnicodeError):  # UnicodeError: not a valid host name, such as a..b
        return Diagnosis(failure=TlsFailure.UNKNOWN_HOST, detail=end.host)
    except TimeoutError:
        return Diagnosis(failure=TlsFailure.TIMEOUT)
    except OSError as error:
        return Diagnosis(failure=TlsFailure.NOT_LISTENING, detail=str(error.strerror))
    return None


def _try_plain(end: Endpoint) -> Diagnosis | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        _perform_handshake(end, context)
    except _ConnectionClosed:
        pass
    except OSError:
        return None
    return Diagnosis(failure=TlsFailure.NEEDS_TLS)


def _find_unusable_file(end: Endpoint) -> Diagnosis | None:
    for file, load in ((end.ca, _build_context), (end.cert, _load_certificate)):
        try:
            load(end)
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or "not PEM"
            detail = reason.lower().replace("_", " ") if isinstance(error, ssl.SSLError) else reason
            return Diagnosis(failure=TlsFailure.UNUSABLE_FILE, detail=detail, file=file)
    return None


def _try_tls(end: Endpoint) -> Diagnosis | None:
    try:
        _perform_handshake(end, _load_certificate(end))
    except ssl.SSLCertVerificationError as error:
        return _judge_certificate(end, error)
    except _ConnectionClosed:
        return Diagnosis(failure=TlsFailure.CLIENT_CERTIFICATE, file=end.cert)
    except OSError as error:
        # A connection reset or a timeout does not show whether the server uses TLS.
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            return Diagnosis(failure=TlsFailure.NO_TLS)
    return None


def _judge_certificate(end: Endpoint, error: ssl.SSLCertVerificationError) -> Diagnosis:
    detail = error.verify_message
    if error.verify_code in _NAMES:
        return Diagnosis(failure=TlsFailure.WRONG_NAME, detail=detail, names=_read_names(end))
    failure = TlsFailure.EXPIRED if error.verify_code in _TIMES else TlsFailure.UNTRUSTED
    return Diagnosis(failure=failure, detail=detail)


def _read_names(end: Endpoint) -> tuple[str, ...]:
    """Return the names in the server's certificate, if a trusted CA issued it."""
    context = _load_certificate(end)
    context.check_hostname = False
    try:
        certificate: Any = _perform_handshake(end, context)
    except (_ConnectionClosed, OSError):
        return ()
    return tuple(str(name) for _, name in certificate.get("subjectAltName", ()))


class _ConnectionClosed(Exception):
    """The server closed the connection after the handshake."""


def _perform_handshake(end: Endpoint, context: ssl.SSLContext) -> object:
    """Perform a TLS handshake, and return the certificate of the server if the context verifies it.

    Raise `_ConnectionClosed` if the server closes the connection after the handshake.
    """
    with (
        socket.create_connection((end.host, end.port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=end.server_name or end.host) as secured,
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


def _build_context(end: Endpoint) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=end.ca or None)
    # As in gRPC, a trusted certificate does not need a trusted issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context


def _load_certificate(end: Endpoint) -> ssl.SSLContext:
    context = _build_context(end)
    if end.cert:
        context.load_cert_chain(end.cert, end.key)
    return context

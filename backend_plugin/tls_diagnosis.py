"""The reason why a connection to a server fails: TLS on one side only, a wrong certificate, an unknown host.

gRPC reports all these errors with one message, so this module repeats the connection after gRPC has failed.
"""

import os
import socket
import ssl
from dataclasses import replace
from typing import Any, Final

from backend_plugin.server_address import FILES, TLS, Server, split_address

ROOTS: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""gRPC's environment variable for a file with the CAs that all its clients trust."""
SECONDS: Final = 5.0
"""Timeout for a connection in seconds."""
_ALERT: Final = 1.0
"""Seconds to wait for a TLS alert: in TLS 1.3, a server checks the client certificate after the handshake."""
_NAMES: Final = frozenset({62, 64})
"""OpenSSL's error codes for a certificate that is valid for another host name or address."""
_TIMES: Final = frozenset({9, 10})
_NO_TLS: Final = (
    *("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"),
    *("PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"),
)
"""OpenSSL's reasons for a reply that is not TLS; they differ between versions."""


def diagnose(server: Server) -> str | None:
    """Return the reason why a connection to the server fails, and the remedy.

    The text continues a sentence that starts with the name of the server: ``has no port; write ...``. The
    result is None if no process listens on the port, or if the reason cannot be determined.
    """
    written = str(server.address)
    if "/" in written.removeprefix(TLS):  # Another scheme of gRPC, such as dns:///host:port.
        return None
    address = split_address(written)
    if address is None:
        return "has no port; write HOST:PORT, or grpcs://HOST:PORT for a server with TLS"
    host, _ = address
    try:
        socket.create_connection(address, SECONDS).close()
    except (socket.gaierror, UnicodeError):  # UnicodeError: not a valid host name, such as a..b
        return f"cannot be resolved: the DNS has no {host}; write the name or address of the server"
    except TimeoutError:
        remedy = "see that the address is right, and that no firewall or NetworkPolicy is in between"
        return f"accepts no connection within {SECONDS:g} s; {remedy}"
    except OSError:
        return None
    server = replace(
        server, ca=server.ca or os.environ.get(ROOTS, ""), tls_server_name=server.tls_server_name or host
    )
    uses_tls = written.startswith(TLS)
    return _try_tls(server, address) if uses_tls else _try_plain(server, address)


def _try_plain(server: Server, address: tuple[str, int]) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        _perform_handshake(server, address, context)
    except _ConnectionClosed:
        pass
    except OSError:
        return None
    return f"requires TLS, and the call used none; write --server {TLS}{server.address}"


def _try_tls(server: Server, address: tuple[str, int]) -> str | None:
    try:
        context = _build_context(server)
    except OSError as error:
        files = " and ".join(filter(None, (server.ca, server.cert, server.key)))
        remedy = "name PEM files, and the key that belongs to the certificate"
        return f"cannot be tried with TLS: {files} cannot be used: {error}; {remedy}"
    try:
        _perform_handshake(server, address, context)
    except ssl.SSLCertVerificationError as error:
        return _judge_certificate(server, address, error)
    except _ConnectionClosed:
        if not server.cert:
            remedy = f"write --cert FILE --key FILE, or set {FILES['cert']} and {FILES['key']}"
            return f"requires a certificate of its clients; {remedy}"
        remedy = "use one of the authority in the server's setting tls.client-ca"
        return f"does not accept the certificate in {server.cert}; {remedy}"
    except OSError as error:
        # A connection reset or a timeout does not show whether the server uses TLS.
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            remedy = f"write --server {str(server.address).removeprefix(TLS)}, without --ca and --cert"
            return f"does not use TLS, and the call used it; {remedy}"
    return None


def _judge_certificate(server: Server, address: tuple[str, int], error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _NAMES:
        names = _read_names(server, address)
        usable = next((each for each in names if "*" not in each), "NAME")
        return (
            f"has a certificate for {', '.join(names) or 'no host'}, not for {server.tls_server_name}; "
            f"write --tls-server-name {usable}, or issue it for this name, too"
        )
    if error.verify_code in _TIMES:
        remedy = "renew it, and see that the clock of this machine is right"
        return f"has a certificate that is not valid now: {error.verify_message}; {remedy}"
    remedy = f"name the file of its authority: --ca FILE, or set {FILES['ca']}"
    return f"has a certificate from a CA that is not trusted here: {error.verify_message}; {remedy}"


def _read_names(server: Server, address: tuple[str, int]) -> tuple[str, ...]:
    """Return the host names in a server's certificate; ``()`` if it is untrusted or the connection fails."""
    context = _build_context(server)
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
    if server.cert:
        context.load_cert_chain(server.cert, server.key)
    return context

"""Diagnosis of a failed connection to a connector: no listener, TLS on one side only, a wrong certificate.

gRPC reports all these errors with one message, so this module repeats the connection after gRPC has failed.
"""

import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

from backend_plugin.doctor.facts import Tried

_SECONDS: Final = 5.0
_ALERT: Final = 1.0
"""Timeout for an alert. With TLS 1.3, a server rejects a missing client certificate after the handshake."""
_ROOTS: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
_TLS: Final = "grpcs://"
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
_PODS: Final = "kubectl get services,pods -A -l app.kubernetes.io/name=kfpytorch-backend"


class _Ended(Exception):
    """The server closed the connection after the handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The address of the connector, and a file with trusted certificates."""

    host: str
    port: int
    roots: str = ""

    @property
    def endpoint(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def trouble(address: str, certificate: str = "") -> Tried | None:
    """Return the problem of a connection to ``HOST:PORT``, or ``grpcs://HOST:PORT`` for TLS, or None."""
    endpoint = address.removeprefix(_TLS)
    host, _, port = endpoint.rpartition(":")
    if "/" in endpoint:
        return None
    if not (host and port.isdecimal()):
        return Tried(
            what=address, trouble="has no port", remedy=f"kfpytorch doctor --connector {address}:8000"
        )
    end = _End(host=host.strip("[]"), port=int(port), roots=certificate or os.environ.get(_ROOTS, ""))
    found = _not_listening(end) or (_of_tls(end) if address != endpoint else _of_plain(end))
    return Tried(what=address, trouble=found[0], remedy=found[1]) if found else None


def _not_listening(end: _End) -> tuple[str, str] | None:
    try:
        socket.create_connection((end.host, end.port), _SECONDS).close()
    except (socket.gaierror, UnicodeError):  # UnicodeError: not a valid host name, such as a..b
        forward = f"kubectl port-forward -n NAMESPACE service/NAME {end.port}"
        return (
            f"cannot be found: the DNS knows no {end.host}",
            f"{_PODS}  # then from outside of the cluster: {forward}",
        )
    except TimeoutError:
        return f"takes no connection within {_SECONDS:g} s", f"{_PODS}; kubectl get networkpolicies -A"
    except OSError as error:
        return f"is a port at which nobody listens: {error.strerror}", _PODS
    return None


def _of_plain(end: _End) -> tuple[str, str] | None:
    """Report a server that requires TLS."""
    try:
        _shaken(end, _trusting_anybody())
    except _Ended:
        pass
    except OSError:
        return None
    return (
        "speaks TLS, and was asked without",
        f"kfpytorch doctor --connector {_TLS}{end.endpoint}  # and for Flyte insecure: false",
    )


def _of_tls(end: _End) -> tuple[str, str] | None:
    try:
        trusting = _trusting(end.roots)
    except OSError as error:
        why = getattr(error, "reason", "").lower().replace("_", " ") or error.strerror
        return (
            f"cannot be trusted by {end.roots}: {why}",
            f"name a PEM file that is there, as tls.certificate of the settings or by {_ROOTS}",
        )
    try:
        _shaken(end, trusting)
    except ssl.SSLCertVerificationError as error:
        return _of_certificate(end, error)
    except _Ended:
        return (
            "ends a connection once TLS is agreed, as servers do that want a certificate of their clients; "
            "this command has none",
            f"grpcurl -cacert ca.crt -cert tls.crt -key tls.key {end.endpoint} list",
        )
    except OSError as error:
        # A connection reset or a timeout does not show whether the server uses TLS.
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            plain = f"kfpytorch doctor --connector {end.endpoint}"
            return (
                "does not speak TLS, and was asked with it",
                f"{plain}  # and for Flyte insecure: true; or give the server tls.certificate and tls.key",
            )
    return None


def _of_certificate(end: _End, error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if error.verify_code in _NAMES:
        names = _names(end)
        said = f"has a certificate that is not for {end.host}, but for {', '.join(names) or 'nobody'}"
        usable = next((each for each in names if "*" not in each), "NAME")
        return (
            said,
            f"kfpytorch doctor --connector {_TLS}{usable}:{end.port}  # or issue one for {end.host}, too",
        )
    if error.verify_code in _TIMES:
        show = f"openssl s_client -connect {end.endpoint} </dev/null | openssl x509 -noout -dates"
        return f"has a certificate that is not valid now: {error.verify_message}", f"{show}  # issue another"
    take = "kubectl get secret NAME -n NAMESPACE -o 'jsonpath={.data.ca\\.crt}' | base64 -d > ca.crt"
    return (
        f"has a certificate of an authority that is not trusted here: {error.verify_message}",
        f"{_ROOTS}=ca.crt kfpytorch doctor --connector {_TLS}{end.endpoint}  # ca.crt from the server's "
        f"Secret: {take}",
    )


def _names(end: _End) -> list[str]:
    """Return the names in the certificate, if a trusted authority issued it."""
    context = _trusting(end.roots)
    context.check_hostname = False
    try:
        found: Any = _shaken(end, context)
    except (_Ended, OSError):
        return []
    return [str(name) for _, name in found.get("subjectAltName", ())]


def _shaken(end: _End, context: ssl.SSLContext) -> object:
    """Return the certificate of the server, as far as the context verifies it.

    Raises:
        _Ended: If the server closes the connection after the handshake.
        OSError: If the connection or the handshake fails.
    """
    with (
        socket.create_connection((end.host, end.port), _SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=end.host) as secured,
    ):
        shown = secured.getpeercert()
        secured.settimeout(_ALERT)
        try:
            said = secured.recv(1)
        except TimeoutError:
            return shown  # The server waits for a request.
        except OSError as error:
            raise _Ended from error
        if not said:
            raise _Ended
        return shown


def _trusting(roots: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=roots or None)
    # As in gRPC, a trusted certificate does not need a trusted issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context

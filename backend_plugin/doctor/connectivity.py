"""Sentences and remedies for a connector that cannot be reached."""

from collections.abc import Callable, Mapping
from typing import Final

from backend_plugin.connection import Server
from backend_plugin.doctor.facts import ProbeResult
from backend_plugin.shell import tls_diagnosis
from backend_plugin.shell.tls_diagnosis import Diagnosis, Endpoint, TlsFailure

_PODS: Final = "kubectl get services,pods -A -l app.kubernetes.io/name=kfpytorch-backend"
_DOCTOR: Final = "kfpytorch doctor --connector"


def find_problem(server: Server) -> ProbeResult | None:
    """Return the problem of a connection, or None if it cannot be determined."""
    address = str(server.address)
    if "/" in address.removeprefix(tls_diagnosis.TLS):
        return None
    end = tls_diagnosis.parse_endpoint(
        address, ca=server.ca, cert=server.cert, key=server.key, server_name=server.tls_server_name
    )
    if end is None:
        return ProbeResult(what=address, trouble="has no port", remedy=f"{_DOCTOR} {address}:8000")
    found = tls_diagnosis.diagnose(end)
    if found is None:
        return None
    sentence, remedy = _SENTENCES[found.failure](end, found)
    return ProbeResult(what=address, trouble=sentence, remedy=remedy)


def _unknown_host(end: Endpoint, _: Diagnosis) -> tuple[str, str]:
    forward = f"kubectl port-forward -n NAMESPACE service/NAME {end.port}"
    return (
        f"cannot be resolved: the DNS has no {end.host}",
        f"{_PODS}  # then from outside of the cluster: {forward}",
    )


def _timeout(_: Endpoint, __: Diagnosis) -> tuple[str, str]:
    return (
        f"accepts no connection within {tls_diagnosis.SECONDS:g} s",
        f"{_PODS}; kubectl get networkpolicies -A",
    )


def _find_listen_problem(_: Endpoint, found: Diagnosis) -> tuple[str, str]:
    return f"is a port without a listener: {found.detail}", _PODS


def _needs_tls(end: Endpoint, _: Diagnosis) -> tuple[str, str]:
    return (
        "requires TLS, and the call used none",
        f"{_DOCTOR} {tls_diagnosis.TLS}{end}  # and for Flyte insecure: false",
    )


def _no_tls(end: Endpoint, _: Diagnosis) -> tuple[str, str]:
    return (
        "does not use TLS, and the call used it",
        f"{_DOCTOR} {end}  # and for Flyte insecure: true; or give the server tls.certificate and tls.key",
    )


def _unusable_file(_: Endpoint, found: Diagnosis) -> tuple[str, str]:
    return (
        f"cannot be tried with TLS: {found.file} cannot be used: {found.detail}",
        "name PEM files with --ca, --cert and --key; the key has to belong to the certificate",
    )


def _untrusted(end: Endpoint, found: Diagnosis) -> tuple[str, str]:
    take = "kubectl get secret NAME -n NAMESPACE -o 'jsonpath={.data.ca\\.crt}' | base64 -d > ca.crt"
    return (
        f"has a certificate from a CA that is not trusted here: {found.detail}",
        f"{_DOCTOR} {tls_diagnosis.TLS}{end} --ca ca.crt  # ca.crt from the server's Secret: {take}",
    )


def _wrong_name(end: Endpoint, found: Diagnosis) -> tuple[str, str]:
    expected = end.server_name or end.host
    usable = next((each for each in found.names if "*" not in each), "NAME")
    return (
        f"has a certificate for {', '.join(found.names) or 'no host'}, not for {expected}",
        f"{_DOCTOR} {tls_diagnosis.TLS}{usable}:{end.port}  # or issue one for {expected}, too",
    )


def _expired(end: Endpoint, found: Diagnosis) -> tuple[str, str]:
    show = f"openssl s_client -connect {end} </dev/null | openssl x509 -noout -dates"
    return f"has a certificate that is not valid now: {found.detail}", f"{show}  # issue another"


def _client_certificate(end: Endpoint, found: Diagnosis) -> tuple[str, str]:
    if found.file:
        return (
            f"does not accept the certificate in {found.file}",
            "name one of the authority in the server's tls.client-ca, with --cert and --key",
        )
    return (
        "requires a certificate of its clients",
        f"{_DOCTOR} {tls_diagnosis.TLS}{end} --cert tls.crt --key tls.key  # and --ca for its authority",
    )


_SENTENCES: Final[Mapping[TlsFailure, Callable[[Endpoint, Diagnosis], tuple[str, str]]]] = {
    TlsFailure.UNKNOWN_HOST: _unknown_host,
    TlsFailure.TIMEOUT: _timeout,
    TlsFailure.NOT_LISTENING: _find_listen_problem,
    TlsFailure.NEEDS_TLS: _needs_tls,
    TlsFailure.NO_TLS: _no_tls,
    TlsFailure.UNUSABLE_FILE: _unusable_file,
    TlsFailure.UNTRUSTED: _untrusted,
    TlsFailure.WRONG_NAME: _wrong_name,
    TlsFailure.EXPIRED: _expired,
    TlsFailure.CLIENT_CERTIFICATE: _client_certificate,
}

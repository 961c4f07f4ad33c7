"""Sentences and remedies for a connector that cannot be reached."""

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
    diagnosis = tls_diagnosis.diagnose(end)
    if diagnosis is None:
        return None
    trouble = tls_diagnosis.describe(end, diagnosis)
    return ProbeResult(what=address, trouble=trouble, remedy=_build_remedy(end, diagnosis))


def _build_remedy(end: Endpoint, diagnosis: Diagnosis) -> str:
    usable = next((each for each in diagnosis.names if "*" not in each), "NAME")
    forward = f"kubectl port-forward -n NAMESPACE service/NAME {end.port}"
    take = "kubectl get secret NAME -n NAMESPACE -o 'jsonpath={.data.ca\\.crt}' | base64 -d > ca.crt"
    show = f"openssl s_client -connect {end} </dev/null | openssl x509 -noout -dates"
    with_tls = f"{_DOCTOR} {tls_diagnosis.TLS}{end}"
    return {
        TlsFailure.UNKNOWN_HOST: f"{_PODS}  # then from outside of the cluster: {forward}",
        TlsFailure.TIMEOUT: f"{_PODS}; kubectl get networkpolicies -A",
        TlsFailure.NOT_LISTENING: _PODS,
        TlsFailure.NEEDS_TLS: f"{with_tls}  # and for Flyte insecure: false",
        TlsFailure.NO_TLS: f"{_DOCTOR} {end}  # and for Flyte insecure: true; or give the server "
        "tls.certificate and tls.key",
        TlsFailure.UNUSABLE_FILE: "name PEM files with --ca, --cert and --key; the key has to belong to the "
        "certificate",
        TlsFailure.UNTRUSTED: f"{with_tls} --ca ca.crt  # ca.crt from the server's Secret: {take}",
        TlsFailure.WRONG_NAME: f"{_DOCTOR} {tls_diagnosis.TLS}{usable}:{end.port}  # or issue one for "
        f"{end.server_name or end.host}, too",
        TlsFailure.EXPIRED: f"{show}  # issue another",
        TlsFailure.CLIENT_CERTIFICATE: "name one of the authority in the server's tls.client-ca, with --cert "
        "and --key"
        if diagnosis.file
        else f"{with_tls} --cert tls.crt --key tls.key  # and --ca for its authority",
    }[diagnosis.failure]

"""Server settings that contradict each other."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from backend_plugin.shell.settings.model import DEFAULT_PORT, ClusterKind

_REQUIRED: Final = {
    "tls.certificate": "tls.key",
    "tls.key": "tls.certificate",
    "tls.client-ca": "tls.certificate",
    "tls.client-names": "tls.client-ca",
}
"""For each setting, the other setting without which it has no effect."""


def iter_contradictions(values: Mapping[str, Any], kind: ClusterKind) -> Iterator[tuple[str, str, str]]:
    """Yield key, message and remedy for each setting that contradicts another setting or the cluster kind."""
    for needs, needed in _REQUIRED.items():
        if needs in values and needed not in values:
            yield needs, f"has no effect without {needed}", f"also set {needed}"
    yield from _iter_unused(values, kind)
    if (port := values.get("metrics.port")) and port == values.get("port", DEFAULT_PORT):
        yield "metrics.port", "is also the port for calls", "write another port, or 0 for a free one"
    if kind is ClusterKind.EMBEDDED and not _is_loopback(values.get("host", "localhost")):
        yield (
            "host",
            "would give other hosts access, and clients of an embedded cluster can run commands as this user",
            "write 127.0.0.1, ::1 or localhost",
        )


def _iter_unused(values: Mapping[str, Any], kind: ClusterKind) -> Iterator[tuple[str, str, str]]:
    for other in ClusterKind:
        for key in values:
            if other is not kind and key.startswith(f"{other.value}."):
                yield key, f"has no effect if the cluster is {kind.value}", f"write cluster: {other.value}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The typed settings of a server, and the contradictions between them."""

import enum
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from backend_plugin.shell.credentials import Tls
from kfpytorch_common.quantity import Quantity

DEFAULT_PORT: Final = 8000


class ClusterKind(enum.Enum):
    """The kind of cluster in which jobs run."""

    EMBEDDED = "embedded"
    """Jobs run as processes of this machine."""
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """Settings of an embedded cluster and its pods."""

    nodes: int = 2
    cpus: Quantity | None = None
    """CPUs of each node. If this or `memory` is None, each node has all CPUs or memory of this machine. If
    `gpus` is None, the GPUs of this machine are divided among the nodes."""
    memory: Quantity | None = None
    gpus: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    """Shell patterns of image names, each with the virtual environment that is used instead of the image."""
    strict_images: bool = False
    durable: bool = False
    code_dir: Path = field(default_factory=Path.cwd)
    pass_env: Sequence[str] = ()
    pod_templates: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """Settings of the connection to a Kubernetes cluster."""

    kubeconfig: str | None = None
    """File names, as in ``KUBECONFIG``; None: the service account of the pod, or kubectl's default."""
    context: str | None = None
    """A context of the kubeconfig; None: its current context."""
    orphan_scan_interval: timedelta = timedelta(hours=1)
    """Time between scans for jobs whose execution no longer exists; 0 disables them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of a server."""

    cluster: ClusterKind = ClusterKind.EMBEDDED
    host: str
    port: int = DEFAULT_PORT
    state_dir: Path
    tls: Tls | None = None
    token_file: Path | None = None
    signing_keys_file: Path | None = None
    """The file of signing keys; None: a key in the state directory."""
    accept_unsigned: bool
    """Accept job references and jobs without a signature."""
    allow_unauthenticated: bool = False
    """Require no authentication, although clients can run commands through this server."""
    max_receive_message_size: int = 12 * 2**20
    """Maximum size of a request. FlytePropeller sends whole templates, and inline inputs of up to 10 MB."""
    max_send_message_size: int = 32 * 2**20
    max_concurrent_rpcs: int = 512
    drain_timeout: timedelta = timedelta(seconds=20)
    """Time for running calls after the first stop signal; less than Kubernetes' grace period of 30 s."""
    namespaces: Sequence[str] = ("*",)
    namespace_template: str
    """The namespace of a project and domain: Flyte's `namespace_mapping.template`, or a shell pattern."""
    excluded_namespaces: Sequence[str] = ()
    output_prefixes: Sequence[str]
    metrics_host: str
    metrics_port: int | None = None
    log_level: str = "info"
    log_format: str | None = None
    embedded: EmbeddedSettings = field(default_factory=EmbeddedSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)


_REQUIRED: Final = {
    "tls.certificate": "tls.key",
    "tls.key": "tls.certificate",
    "tls.client-ca": "tls.certificate",
    "tls.client-names": "tls.client-ca",
}
"""For each setting, the other setting without which it has no effect."""


def iter_contradictions(values: Mapping[str, Any], kind: ClusterKind) -> Iterator[tuple[str, str, str]]:
    """Yield key, message and remedy for each setting that contradicts another setting or the cluster kind."""
    yield from _iter_incomplete(values)
    yield from _iter_unused(values, kind)
    if (port := values.get("metrics.port")) and port == values.get("port", DEFAULT_PORT):
        yield "metrics.port", "is also the port for calls", "write another port, or 0 for a free one"
    if kind is ClusterKind.EMBEDDED and not _is_loopback(values.get("host", "localhost")):
        yield (
            "host",
            "would give other hosts access, and clients of an embedded cluster can run commands as this user",
            "write 127.0.0.1, ::1 or localhost",
        )


def _iter_incomplete(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for needs, needed in _REQUIRED.items():
        if needs in values and needed not in values:
            yield needs, f"has no effect without {needed}", f"also set {needed}"


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

"""Every setting of a server, typed. What each does is said where it is used.

A value that exists has been read by `reading` or is a default.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from backend_plugin.core.quantity import Quantity
from backend_plugin.shell.credentials import Tls


class ClusterKind(enum.Enum):
    """Where jobs run."""

    EMBEDDED = "embedded"
    """As processes of this machine."""
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What an embedded cluster has, and what its pods are given."""

    nodes: int = 2
    cpus: Quantity | None = None
    """Of each node; None, here and below: as many as this machine has."""
    memory: Quantity | None = None
    gpus: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    """Which virtual environment an image stands for, by patterns of its name."""
    strict_images: bool = False
    durable: bool = False
    code: Path = field(default_factory=Path.cwd)
    pass_env: Sequence[str] = ()
    pod_templates: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Where a Kubernetes cluster is."""

    kubeconfig: str | None = None
    """One or several files, as in ``KUBECONFIG``; None: the pod's own account, or else kubectl's default."""
    context: str | None = None
    """Of the kubeconfig; None: its current one."""
    orphans_every: timedelta = timedelta(hours=1)
    """How often jobs are looked for whose execution is gone; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """All of them."""

    cluster: ClusterKind = ClusterKind.EMBEDDED
    host: str
    port: int = 8000
    state: Path
    tls: Tls | None = None
    token_file: Path | None = None
    signing_keys_file: Path | None = None
    """None: a key in the directory of state."""
    accept_unsigned: bool
    """References and jobs without a signature are accepted."""
    open_to_all: bool = False
    """Nothing is wanted of who calls, though what is called may run commands."""
    receive_limit: int = 12 * 2**20
    send_limit: int = 32 * 2**20
    concurrency: int = 512
    drain: timedelta = timedelta(seconds=20)
    namespaces: Sequence[str] = ("*",)
    namespace_template: str
    """Flyte's `namespace_mapping.template`, or a pattern."""
    refused_namespaces: Sequence[str] = ()
    output_prefixes: Sequence[str]
    metrics_host: str
    metrics_port: int | None = None
    log_level: str = "info"
    log_format: str | None = None
    embedded: Embedded = field(default_factory=Embedded)
    kubernetes: Kubernetes = field(default_factory=Kubernetes)

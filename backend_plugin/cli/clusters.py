"""Opens the cluster of a server, with the platform's defaults for its kind."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from backend_plugin.cli import emulated
from backend_plugin.cli.serve_settings import Configuration
from backend_plugin.core.errors import BackendError
from backend_plugin.core.settings import Settings
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell import bounded_read, server_file
from backend_plugin.shell.capabilities_cache import CapabilitySource
from backend_plugin.shell.cluster import Cluster
from backend_plugin.shell.job_service import NodeOperations
from backend_plugin.shell.orphans import Executions
from backend_plugin.shell.settings import ClusterKind, EmbeddedSettings, ServerSettings
from backend_plugin.shell.watch_status import WatchStatus

_LOG: Final = logging.getLogger("kfpytorch")
_GPU: Final = "nvidia.com/gpu"
_PATTERN: Final = frozenset("*?[")


def _get_utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCluster:
    """An open cluster and its interfaces."""

    cluster: Cluster
    platform: Settings
    nodes: NodeOperations | None = None
    """The nodes of an embedded cluster, which commands can change; None for a Kubernetes cluster."""
    executions: Executions | None = None
    """Access to Flyte's workflow objects; None for an embedded cluster."""
    looks: CapabilitySource | None = None
    """Reads the capabilities for gangs; None for an embedded cluster."""
    sight: WatchStatus | None = None
    """The status of the watches; None for an embedded cluster, which has none."""
    now: Callable[[], datetime] = _get_utc_now
    """Returns the time of the cluster's clock."""


async def open_cluster(stack: AsyncExitStack, configuration: Configuration) -> OpenedCluster:
    """Open the cluster that the settings specify; `stack` closes it.

    Raises:
        BackendError: If the cluster cannot be opened.
    """
    said, platform = configuration.server.settings, configuration.platform
    if said.cluster is ClusterKind.KUBERNETES:
        from backend_plugin.kube.cluster import KubernetesCluster

        kubernetes = await KubernetesCluster.open(build_kubernetes_options(said))
        stack.push_async_callback(kubernetes.close)
        return OpenedCluster(
            cluster=kubernetes,
            platform=platform,
            executions=kubernetes,
            looks=kubernetes.looking,
            sight=kubernetes.sight,
            now=kubernetes.clock.get_current_time,
        )
    from backend_plugin.embedded.cluster import EmbeddedCluster

    embedded = await EmbeddedCluster.open(said.state_dir, build_embedded_options(said.embedded))
    stack.push_async_callback(embedded.close)
    return OpenedCluster(
        cluster=embedded, platform=emulated.with_embedded_defaults(platform, said.state_dir), nodes=embedded
    )


def publish_server(stack: AsyncExitStack, said: ServerSettings, reached: server_file.ServerInfo) -> None:
    """Write the file by which this user's commands find the server, and remove it when `stack` ends.

    Raises:
        ServerFileError: If the cluster is embedded and the file cannot be written to its state directory.
    """
    try:
        server_file.write(said.state_dir, reached)
    except server_file.ServerFileError as error:
        # In a pod the file is not needed, and often no directory is writable.
        if said.cluster is ClusterKind.EMBEDDED:
            raise
        _LOG.info("%s; or set --token-file, with which commands can call this server from elsewhere", error)
        return
    stack.callback(server_file.delete_if_own, said.state_dir, reached)


def require_credentials(said: ServerSettings) -> None:
    """Check that credentials for a Kubernetes cluster are configured, without a connection.

    Raises:
        CredentialsUnusable: If there are no usable credentials.
    """
    if said.cluster is ClusterKind.KUBERNETES:
        from backend_plugin.kube import credentials

        asyncio.run(credentials.select_credentials(build_kubernetes_options(said)).load())


def list_named_namespaces(said: ServerSettings) -> tuple[str, ...]:
    """Return the namespaces of the settings that are not patterns."""
    return tuple(each for each in said.namespaces if not _PATTERN & set(each))


def build_kubernetes_options(said: ServerSettings) -> KubernetesOptions:
    """Return the options of a Kubernetes cluster. If a namespace is a pattern, all namespaces are watched."""
    several = any(_PATTERN & set(namespace) for namespace in said.namespaces)
    return KubernetesOptions(
        kubeconfig=said.kubernetes.kubeconfig or "",
        context=said.kubernetes.context or "",
        namespaces=() if several else tuple(said.namespaces),
    )


class UnusableTemplates(BackendError):
    """The PodTemplates are neither in a directory nor in a readable regular file of limited size."""


def build_embedded_options(said: EmbeddedSettings) -> EmbeddedOptions:
    """Return the options of an embedded cluster.

    Raises:
        UnusableTemplates: If its PodTemplates cannot be read.
    """
    if said.pod_templates is not None and not said.pod_templates.is_dir():
        try:
            bounded_read.read_file(said.pod_templates)
        except OSError as error:
            raise UnusableTemplates(f"{said.pod_templates}: {error.strerror}") from error
    has = {"cpu": said.cpus, "memory": said.memory}
    capacity = {name: amount.text for name, amount in has.items() if amount is not None}
    return EmbeddedOptions(
        nodes=said.nodes,
        capacity=capacity if said.gpus is None else {**capacity, _GPU: str(said.gpus)},
        labels=said.labels,
        durable=said.durable,
        code=said.code_dir,
        images=said.images,
        strict_images=said.strict_images,
        pass_env=said.pass_env,
        pod_templates=said.pod_templates,
    )

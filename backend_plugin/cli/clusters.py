"""Opens the cluster of a server, Kubernetes or embedded, as the server's settings specify."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from backend_plugin.cli.cluster_options import is_pattern
from backend_plugin.cli.serve_settings import Configuration
from backend_plugin.core.settings import Settings
from backend_plugin.core.settings.judging import LogLinkSettings, LogTemplate
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.kube.clock import get_local_time
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell import server_file
from backend_plugin.shell.capabilities_cache import CapabilitySource
from backend_plugin.shell.cluster import Cluster
from backend_plugin.shell.node_service import NodeOperations
from backend_plugin.shell.orphan_finder import FlyteCluster
from backend_plugin.shell.settings import ClusterKind, EmbeddedSettings, ServerSettings
from backend_plugin.shell.watch_status import WatchStatus

_LOG: Final = logging.getLogger("kfpytorch")
_GPU: Final = "nvidia.com/gpu"
# The default TTL of jobs in an embedded cluster: no owner deletes them, and their logs use the local disk.
_KEPT_EMBEDDED: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCluster:
    """An open cluster, with the interfaces through which a server uses it."""

    cluster: Cluster
    platform: Settings
    nodes: NodeOperations | None = None
    """The nodes of an embedded cluster, which commands can change; None for a Kubernetes cluster."""
    flyte: FlyteCluster | None = None
    """The cluster, if it contains Flyte's workflow objects; None for an embedded cluster."""
    capabilities: CapabilitySource | None = None
    """Reads the gang scheduling capabilities of the cluster; None for an embedded cluster."""
    watch_status: WatchStatus | None = None
    """The status of the Kubernetes watches; None for an embedded cluster, which needs no watches."""
    now: Callable[[], datetime] = get_local_time
    """Returns the time of the cluster's clock."""


async def open_cluster(stack: AsyncExitStack, configuration: Configuration) -> OpenedCluster:
    """Open the cluster that the settings specify; `stack` closes it.

    Raises:
        BackendError: If the cluster cannot be opened.
    """
    settings, platform = configuration.server.settings, configuration.platform
    if settings.cluster is ClusterKind.KUBERNETES:
        from backend_plugin.kube.cluster import KubernetesCluster

        kubernetes = await KubernetesCluster.open(build_kubernetes_options(settings))
        stack.push_async_callback(kubernetes.close)
        return OpenedCluster(
            cluster=kubernetes,
            platform=platform,
            flyte=kubernetes,
            capabilities=kubernetes.discovery,
            watch_status=kubernetes.watch_status,
            now=kubernetes.clock.get_current_time,
        )
    from backend_plugin.embedded.cluster import EmbeddedCluster

    embedded = await EmbeddedCluster.open(settings.state_dir, build_embedded_options(settings.embedded))
    stack.push_async_callback(embedded.close)
    return OpenedCluster(
        cluster=embedded,
        platform=_with_embedded_defaults(platform, settings.state_dir),
        nodes=embedded.nodes,
    )


def _with_embedded_defaults(settings: Settings, state: Path) -> Settings:
    """Return the settings; if they have no log links or no TTL of jobs, add those for an embedded cluster.

    The log links lead to files in the state directory `state`.
    """
    plugin = settings.kfpytorch
    if not plugin.ttl_after_finished:
        plugin = replace(plugin, ttl_after_finished=_KEPT_EMBEDDED)
    logs = settings.logs
    if logs == LogLinkSettings():
        folder = f"{(state / 'pods').absolute().as_uri()}/{{{{ .podUID }}}}/logs/{{{{ .containerName }}}}"
        logs = replace(logs, templates=(LogTemplate(name="Logs of", template_uris=(folder,)),))
    return replace(settings, logs=logs, kfpytorch=plugin)


def publish_server(stack: AsyncExitStack, settings: ServerSettings, reached: server_file.ServerInfo) -> None:
    """Write the file with which this user's commands find the server, and remove it when `stack` ends.

    Raises:
        ServerFileError: If the cluster is embedded and the file cannot be written to its state directory.
    """
    try:
        server_file.write(settings.state_dir, reached)
    except server_file.ServerFileError as error:
        # In a pod the file is not needed, and often no directory is writable.
        if settings.cluster is ClusterKind.EMBEDDED:
            raise
        _LOG.info("%s; or set --token-file, with which commands can call this server from elsewhere", error)
        return
    stack.callback(server_file.delete_if_own, settings.state_dir, reached)


def require_credentials(settings: ServerSettings) -> None:
    """Check that credentials for a Kubernetes cluster are configured, without a connection.

    Raises:
        CredentialsUnusable: If there are no usable credentials.
    """
    if settings.cluster is ClusterKind.KUBERNETES:
        from backend_plugin.kube import credentials

        asyncio.run(credentials.select_credentials(build_kubernetes_options(settings)).load())


def build_kubernetes_options(settings: ServerSettings) -> KubernetesOptions:
    """Convert the settings of a server to the options with which it connects to a Kubernetes cluster.

    If a namespace is a pattern, all namespaces are watched.
    """
    several = any(map(is_pattern, settings.namespaces))
    return KubernetesOptions(
        kubeconfig=settings.kubernetes.kubeconfig or "",
        context=settings.kubernetes.context or "",
        namespaces=() if several else tuple(settings.namespaces),
    )


def build_embedded_options(settings: EmbeddedSettings) -> EmbeddedOptions:
    """Convert settings to the options with which a server opens its embedded cluster."""
    has = {"cpu": settings.cpus, "memory": settings.memory}
    capacity = {name: amount.text for name, amount in has.items() if amount is not None}
    return EmbeddedOptions(
        nodes=settings.nodes,
        capacity=capacity if settings.gpus is None else {**capacity, _GPU: str(settings.gpus)},
        labels=settings.labels,
        durable=settings.durable,
        code=settings.code_dir,
        images=settings.images,
        strict_images=settings.strict_images,
        pass_env=settings.pass_env,
        pod_templates=settings.pod_templates,
    )

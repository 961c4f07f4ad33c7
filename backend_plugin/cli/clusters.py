"""The cluster that a server is for: opened, with what a platform means there by saying nothing.

Lives here: which kind is told what. Does not: what any of them does; see `embedded` and `kube`.
"""

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
from backend_plugin.shell import discovery, small_files
from backend_plugin.shell.cluster import Cluster
from backend_plugin.shell.findings import Looks
from backend_plugin.shell.orphans import Executions
from backend_plugin.shell.people import Nodes
from backend_plugin.shell.settings import ClusterKind, Embedded, ServerSettings
from backend_plugin.shell.sight import Sight

_LOG: Final = logging.getLogger("kfpytorch")
_GPU: Final = "nvidia.com/gpu"
_PATTERN: Final = frozenset("*?[")


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A cluster to serve."""

    cluster: Cluster
    platform: Settings
    nodes: Nodes | None = None
    """Those that can be told what to be; None where they are real."""
    executions: Executions | None = None
    """Flyte's objects; None where there are none."""
    looks: Looks | None = None
    """Who can tell what schedulers of gangs it has; None where there are none."""
    sight: Sight | None = None
    """How much of it is seen; None where that is all of it."""
    now: Callable[[], datetime] = _now
    """What time it is there."""


async def opened(stack: AsyncExitStack, configuration: Configuration) -> Opened:
    """The cluster that the settings name; `stack` closes it.

    Raises:
        BackendError: If it cannot be had.
    """
    said, platform = configuration.server.settings, configuration.platform
    if said.cluster is ClusterKind.KUBERNETES:
        from backend_plugin.kube.cluster import KubernetesCluster

        kubernetes = await KubernetesCluster.open(kubernetes_options(said))
        stack.push_async_callback(kubernetes.close)
        return Opened(
            cluster=kubernetes,
            platform=platform,
            executions=kubernetes,
            looks=kubernetes.looking,
            sight=kubernetes.sight,
            now=kubernetes.clock.now,
        )
    from backend_plugin.embedded.cluster import EmbeddedCluster

    embedded = await EmbeddedCluster.open(said.state, embedded_options(said.embedded))
    stack.push_async_callback(embedded.close)
    return Opened(cluster=embedded, platform=emulated.platform(platform, said.state), nodes=embedded)


def tell(stack: AsyncExitStack, said: ServerSettings, reached: discovery.Server) -> None:
    """Have the commands of this user find the server, until `stack` ends.

    Raises:
        CannotSay: If they could not, and the state of an embedded cluster stands there, too.
    """
    try:
        discovery.write(said.state, reached)
    except discovery.CannotSay as error:
        # In a pod there is nobody to look for it, and often no place to write.
        if said.cluster is ClusterKind.EMBEDDED:
            raise
        _LOG.info("%s; or name a --token-file, by which they get in from elsewhere", error)
        return
    stack.callback(discovery.withdraw, said.state, reached)


def reachable(said: ServerSettings) -> None:
    """See that something says how a Kubernetes cluster is reached; whether it answers is for later.

    Raises:
        CredentialsUnusable: If nothing does.
    """
    if said.cluster is ClusterKind.KUBERNETES:
        from backend_plugin.kube import credentials

        asyncio.run(credentials.choose(kubernetes_options(said)).load())


def named_namespaces(said: ServerSettings) -> tuple[str, ...]:
    """Those that the settings name, and not by a pattern."""
    return tuple(each for each in said.namespaces if not _PATTERN & set(each))


def kubernetes_options(said: ServerSettings) -> KubernetesOptions:
    """What a Kubernetes cluster is told; with a pattern among the namespaces all of them are followed."""
    several = any(_PATTERN & set(namespace) for namespace in said.namespaces)
    return KubernetesOptions(
        kubeconfig=said.kubernetes.kubeconfig or "",
        context=said.kubernetes.context or "",
        namespaces=() if several else tuple(said.namespaces),
    )


class UnusableTemplates(BackendError):
    """What should hold PodTemplates has no end, or is no file."""


def embedded_options(said: Embedded) -> EmbeddedOptions:
    """What an embedded cluster is told.

    Raises:
        UnusableTemplates: If there is no reading its pod templates.
    """
    if said.pod_templates is not None and not said.pod_templates.is_dir():
        try:
            small_files.read(said.pod_templates)
        except OSError as error:
            raise UnusableTemplates(f"{said.pod_templates}: {error.strerror}") from error
    has = {"cpu": said.cpus, "memory": said.memory}
    capacity = {name: amount.text for name, amount in has.items() if amount is not None}
    return EmbeddedOptions(
        nodes=said.nodes,
        capacity=capacity if said.gpus is None else {**capacity, _GPU: str(said.gpus)},
        labels=said.labels,
        durable=said.durable,
        code=said.code,
        images=said.images,
        strict_images=said.strict_images,
        pass_env=said.pass_env,
        pod_templates=said.pod_templates,
    )

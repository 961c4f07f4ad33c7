"""Dry runs of planned manifests, with the PodTemplates and the gang capabilities of the cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.job import Plan
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.cluster_reader import ClusterReader
from backend_plugin.doctor.facts import DryRunReply, Subject
from backend_plugin.doctor.queries import Query
from backend_plugin.kube import credentials
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_resources import POD_TEMPLATES
from backend_plugin.kube.capability_discovery import CapabilityDiscovery
from backend_plugin.kube.cluster import get_resource
from backend_plugin.kube.connection import Connection
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """A manifest and the reply of the API server."""

    sent: Manifest
    reply: DryRunReply


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTarget:
    """The namespaces for which a task is planned."""

    namespace: str
    templates: str
    """The fallback namespace for PodTemplates."""
    has_gangs: bool
    """True if the plan depends on the cluster's capabilities for gangs."""


async def run_dry_runs(
    options: KubernetesOptions,
    places: PlanTarget,
    planned: Callable[[Sequence[Manifest], Capabilities], Plan],
) -> tuple[Plan, Sequence[DryRunResult]]:
    """Return the plan for the cluster's PodTemplates and capabilities, and a dry run of each manifest.

    Raises:
        BackendError: If a request fails or is forbidden, and the errors that `planned` raises.
    """
    connection = Connection(credentials.select_credentials(options))
    try:
        await connection.open()
        api = ApiClient(connection, options.patience)
        asking = ClusterReader(api, {})
        namespaces = tuple(dict.fromkeys((places.namespace, places.templates)))
        look = Query(subject=Subject.TEMPLATES, resource=POD_TEMPLATES, namespaces=namespaces)
        templates = [{**each, "kind": "PodTemplate"} for each in await asking.read_objects(look) or ()]
        looking = CapabilityDiscovery(api, Permissions(), options)
        found = await looking.fetch_capabilities(places.namespace, examines_gangs=places.has_gangs)
        plan = planned(templates, found)
        return plan, [await _run_dry_run(asking, plan, each) for each in plan.manifests]
    finally:
        await connection.close()


async def _run_dry_run(asking: ClusterReader, plan: Plan, manifest: Manifest) -> DryRunResult:
    reply = await asking.dry_run_create(get_resource(manifest), manifest)
    return DryRunResult(
        sent=manifest, reply=ignore_missing_prerequisite(reply, get_dialect(plan.dialect), manifest)
    )


def ignore_missing_prerequisite(reply: DryRunReply, dialect: Dialect, manifest: Manifest) -> DryRunReply:
    """Return the reply to a dry run, without a rejection of a job whose prerequisites do not exist.

    The dry run of a prerequisite does not store it, so the operator cannot check a job that needs it.
    """
    return DryRunReply(stored=manifest) if dialect.is_premature(reply.message) else reply

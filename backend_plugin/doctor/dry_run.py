"""Dry runs of planned manifests, with the PodTemplates and the gang capabilities of the cluster."""

from collections.abc import Callable, Sequence

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.plan import Plan
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


async def run_dry_runs(
    options: KubernetesOptions,
    namespaces: Sequence[str],
    planned: Callable[[Sequence[Manifest], Capabilities], Plan],
    *,
    examines_gangs: bool,
) -> tuple[Plan, Sequence[DryRunReply]]:
    """Return the plan for the cluster's PodTemplates and capabilities, and the reply to each manifest.

    Args:
        options: The options of the cluster.
        namespaces: The namespace of the job, and others with PodTemplates.
        planned: Plans the task for PodTemplates and capabilities.
        examines_gangs: True if the plan depends on the capabilities for gangs.

    Raises:
        BackendError: If a request fails or is forbidden, and the errors that `planned` raises.
    """
    connection = Connection(credentials.select_credentials(options))
    try:
        await connection.open()
        api = ApiClient(connection, options.patience)
        asking = ClusterReader(api, {})
        look = Query(subject=Subject.TEMPLATES, resource=POD_TEMPLATES, namespaces=namespaces)
        templates = await asking.read_objects(look) or ()
        looking = CapabilityDiscovery(api, Permissions(), options)
        plan = planned(
            templates, await looking.fetch_capabilities(namespaces[0], examines_gangs=examines_gangs)
        )
        dialect = get_dialect(plan.dialect)
        replies = [(each, await asking.dry_run_create(get_resource(each), each)) for each in plan.manifests]
        return plan, [ignore_missing_prerequisite(reply, dialect, each) for each, reply in replies]
    finally:
        await connection.close()


def ignore_missing_prerequisite(reply: DryRunReply, dialect: Dialect, manifest: Manifest) -> DryRunReply:
    """Return the reply to a dry run, without a rejection of a job whose prerequisites do not exist.

    The dry run of a prerequisite does not store it, so the operator cannot check a job that needs it.
    """
    return DryRunReply(stored=manifest) if dialect.is_premature(reply.message) else reply

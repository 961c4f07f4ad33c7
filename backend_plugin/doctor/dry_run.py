"""Dry runs of planned manifests, with the PodTemplates and the gang capabilities of the cluster."""

from collections.abc import Callable, Sequence

from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.plan import Plan
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.cluster_reader import ClusterReader, open_connection
from backend_plugin.doctor.facts import DryRunReply, Subject
from backend_plugin.doctor.queries import Query
from backend_plugin.kube.api_resources import POD_TEMPLATES
from backend_plugin.kube.capability_discovery import CapabilityDiscovery
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions


async def run_dry_runs(
    options: KubernetesOptions,
    namespaces: Sequence[str],
    planned: Callable[[Sequence[Manifest], Capabilities], Plan],
    *,
    examines_gangs: bool,
) -> tuple[Plan, Sequence[DryRunReply]]:
    """Plan a task for a cluster, send each manifest as a dry run, and return the plan and the replies.

    Args:
        options: The options of the cluster.
        namespaces: The namespace of the job, then the other namespaces whose PodTemplates are read.
        planned: Returns the plan of the task for the given PodTemplates and gang capabilities.
        examines_gangs: True if the plan depends on the capabilities for gangs.

    Raises:
        BackendError: If a request fails or is forbidden, and the errors that `planned` raises.
    """
    async with open_connection(options) as (_, api):
        asking = ClusterReader(api)
        look = Query(subject=Subject.TEMPLATES, resource=POD_TEMPLATES, namespaces=namespaces)
        templates = await asking.read_objects(look) or ()
        looking = CapabilityDiscovery(api, Permissions(), options)
        plan = planned(
            templates, await looking.fetch_capabilities(namespaces[0], examines_gangs=examines_gangs)
        )
        dialect = get_dialect(plan.dialect)
        return plan, [await asking.dry_run_create(each, dialect) for each in plan.manifests]

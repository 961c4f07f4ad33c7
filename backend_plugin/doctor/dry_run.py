"""Dry runs of planned manifests, with the PodTemplates and the gang capabilities of the cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend_plugin.core.job import Plan
from backend_plugin.core.scheduling.findings import NOTHING, Findings
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.asking import Asking
from backend_plugin.doctor.facts import Reply, Subject
from backend_plugin.doctor.looks import Look
from backend_plugin.kube import credentials
from backend_plugin.kube.api import Api
from backend_plugin.kube.cluster import resource_of
from backend_plugin.kube.connection import Connection
from backend_plugin.kube.findings import Looking
from backend_plugin.kube.kinds import POD_TEMPLATES
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A manifest and the reply of the API server."""

    sent: Manifest
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The namespaces for which a task is planned."""

    namespace: str
    templates: str
    """The fallback namespace for PodTemplates."""
    has_gangs: bool
    """True if the plan depends on the cluster's capabilities for gangs."""


async def attempts(
    options: KubernetesOptions, places: Places, planned: Callable[[Sequence[Manifest], Findings], Plan]
) -> tuple[Plan, Sequence[Attempt]]:
    """Return the plan for the cluster's PodTemplates and capabilities, and a dry run of each manifest.

    Raises:
        BackendError: If a request fails or is forbidden, and the errors that `planned` raises.
    """
    connection = Connection(credentials.choose(options))
    try:
        await connection.open()
        api = Api(connection, options.patience)
        asking = Asking(api, {})
        namespaces = tuple(dict.fromkeys((places.namespace, places.templates)))
        look = Look(subject=Subject.TEMPLATES, resource=POD_TEMPLATES, namespaces=namespaces)
        templates = [{**each, "kind": "PodTemplate"} for each in await asking.look(look) or ()]
        found = NOTHING
        if places.has_gangs:
            found = await Looking(api, Permissions(), options).look(places.namespace)
        plan = planned(templates, found)
        return plan, [
            Attempt(sent=each, reply=await asking.trial(resource_of(each), each)) for each in plan.manifests
        ]
    finally:
        await connection.close()

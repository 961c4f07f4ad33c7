"""Manifests, tried on an API server without making anything.

Lives here: asking for all of them, with the PodTemplates that the cluster has. Does not: what is planned.
"""

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
    """One manifest, and what was said to it."""

    sent: Manifest
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a task is planned for."""

    namespace: str
    templates: str
    """Where PodTemplates are looked for second."""
    has_gangs: bool
    """Whether what the cluster has for gangs is to be looked at."""


async def attempts(
    options: KubernetesOptions, places: Places, planned: Callable[[Sequence[Manifest], Findings], Plan]
) -> tuple[Plan, Sequence[Attempt]]:
    """What is planned with what the cluster has, and what it says to each manifest of it.

    Raises:
        BackendError: If it cannot be asked, or may not be; and what `planned` raises.
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

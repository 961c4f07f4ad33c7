"""``kfpytorch render --dry-run=server``: prints the manifests as the cluster would store them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from msgspec import structs

from backend_plugin.cli import cluster_options
from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.job import Attempt
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest

# Fields that the API server adds to every object, with different values each time.
_STORES_OWN: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)


def build_plan(
    values: Mapping[str, Any],
    task: tuple[TaskTemplate, Attempt],
    settings: Settings,
    from_files: tuple[Sequence[Manifest], Capabilities],
) -> Plan:
    """Return the plan of a task, with each manifest as the cluster would store it.

    `values` are the options of the command. `from_files` are the PodTemplates and the capabilities that the
    user gave in files. If one of them is empty, that of the cluster is used.

    Raises:
        InvalidTask: If the task cannot be planned, or the cluster rejects a manifest.
        BackendError: If a request to the cluster fails.
    """
    from backend_plugin.doctor import dry_run
    from backend_plugin.kube.options import KubernetesOptions

    template, run = task
    options = KubernetesOptions(**{key: values[key] for key in cluster_options.KEYS if values[key]})
    plugin = settings.kfpytorch

    def plan_task(templates: Sequence[Manifest], capabilities: Capabilities) -> Plan:
        known = from_files[0] or templates, capabilities if from_files[1] == NOTHING else from_files[1]
        return plan(template, run, settings, *known)

    planned, replies = asyncio.run(
        dry_run.run_dry_runs(
            options,
            tuple(dict.fromkeys((run.namespace, plugin.pod_template_namespace))),
            plan_task,
            examines_gangs=not plugin.gang.is_unconfigured,
        )
    )
    stored = _require_stored(planned, replies)
    first = len(planned.prerequisites)
    prerequisites, job, companions = tuple(stored[:first]), stored[first], tuple(stored[first + 1 :])
    return structs.replace(planned, prerequisites=prerequisites, job=job, companions=lambda _: companions)


def _require_stored(planned: Plan, replies: Sequence[Any]) -> Sequence[Manifest]:
    """Return the stored manifests. Raises `InvalidTask` if the cluster rejects any."""
    tried = zip(planned.manifests, replies, strict=True)
    refused = [_build_problem(sent, reply) for sent, reply in tried if reply.stored is None]
    if refused:
        raise InvalidTask(*refused)
    return [_without_server_fields(each.stored) for each in replies]


def _build_problem(sent: Manifest, reply: Any) -> Problem:
    return Problem(
        field=get_text(sent, "kind"),
        value=get_text(sent, "metadata", "name"),
        message=f"is refused by the cluster ({reply.reason}): {reply.message}",
        remedy="write kfpytorch doctor FILE TASK, which prints what to change",
    )


def _without_server_fields(stored: Manifest) -> Manifest:
    metadata = {key: each for key, each in get_mapping(stored, "metadata").items() if key not in _STORES_OWN}
    return {**stored, "metadata": metadata}

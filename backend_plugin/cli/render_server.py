"""``kfpytorch render --dry-run``: prints the manifests as the cluster would store them, from dry runs."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.cli import ends
from backend_plugin.core.errors import BackendError, InvalidTask, Problem
from backend_plugin.core.job import Plan, Run
from backend_plugin.core.pipeline import plan
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling.findings import NOTHING, Findings
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest

# Fields that the API server adds to every object, with different values each time.
_STORES_OWN: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)


def rendered(
    said: Mapping[str, Any],
    task: tuple[TaskTemplate, Run],
    settings: Settings,
    given: tuple[Sequence[Manifest], Findings],
) -> Plan:
    """Return the plan of a task, with each manifest as the cluster would store it.

    Args:
        said: The command line arguments.
        task: The task and its attempt.
        settings: The platform's settings.
        given: PodTemplates and capabilities; if one is empty, the cluster's own are used.

    Raises:
        InvalidTask: If the task cannot be planned, or the cluster rejects a manifest.
        Unreadable: If a request to the cluster fails.
    """
    from backend_plugin.doctor import dry_run
    from backend_plugin.kube.options import KubernetesOptions

    template, run = task
    options = KubernetesOptions(kubeconfig=said["kubeconfig"] or "", context=said["context"] or "")
    ours = settings.kfpytorch

    def planned(templates: Sequence[Manifest], found: Findings) -> Plan:
        known = given[0] or templates, found if given[1] == NOTHING else given[1]
        return plan(template, run, settings, *known)

    places = dry_run.Places(
        namespace=run.namespace, templates=ours.pod_template_namespace, has_gangs=not ours.gang.is_silent
    )
    try:
        whole, tried = asyncio.run(dry_run.attempts(options, places, planned))
    except InvalidTask:
        raise
    except BackendError as trouble:
        raise ends.Unreadable(str(trouble)) from trouble
    refused = [_problem(each.sent, each.reply) for each in tried if each.reply.stored is None]
    if refused:
        raise InvalidTask(*refused)
    stored = (each.reply.stored for each in tried)
    return replace(whole, manifests=tuple(_without_the_stores(each) for each in stored if each is not None))


def _problem(sent: Manifest, reply: Any) -> Problem:
    return Problem(
        field=text(sent, "kind"),
        value=text(section(sent, "metadata"), "name"),
        message=f"is refused by the cluster ({reply.reason}): {reply.message}",
        remedy="write kfpytorch doctor FILE TASK, which prints what to change",
    )


def _without_the_stores(stored: Manifest) -> Manifest:
    metadata = {key: each for key, each in section(stored, "metadata").items() if key not in _STORES_OWN}
    return {**stored, "metadata": metadata}

"""Builds the manifests of the task that ``kfpytorch doctor`` checks, and the default task."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core import pipeline
from backend_plugin.core.decoding import custom
from backend_plugin.core.decoding.dialect_selection import select_dialect, with_dialect
from backend_plugin.core.errors import InvalidTask, collect_problems
from backend_plugin.core.names import TASK_TYPE
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.doctor import role_pods
from backend_plugin.doctor.facts import Facts, PlannedTask, Subject

if TYPE_CHECKING:
    from backend_plugin.doctor.fact_collector import DoctorRequest

_TASK: Final = {
    "id": {
        "resourceType": "TASK",
        "project": "project",
        "domain": "development",
        "name": "any",
        "version": "1",
    },
    "type": TASK_TYPE,
    "taskTypeVersion": 1,
    # The task never runs, so this image is never pulled.
    "container": {"image": "kfpytorch-doctor:1", "args": ["true"]},
    "custom": {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}},
}


def build_default_task() -> TaskTemplate:
    """Return the default task, used if the user names none: a master and a worker."""
    found: Any = ParseDict(_TASK, TaskTemplate())
    return found


def add_plan(request: "DoctorRequest", facts: Facts, found: Capabilities) -> Facts:
    """Return the facts with the manifests of the task, or with the problems that prevent building them.

    `found` are the capabilities of the cluster.
    """
    task = PlannedTask(
        name=request.template.id.name if request.named else "",
        template=request.template.metadata.pod_template_name,
    )
    known = facts.get_objects(Subject.TEMPLATES)
    settings = request.settings
    try:
        with collect_problems() as problems:
            job = custom.decode(request.template, request.run, problems)
            kind = select_dialect(settings.kfpytorch, job, found)
            task = replace(task, dialect=kind.dialect, dialect_reasons=kind.reasons, framework=job.framework)
        chosen = pipeline.select_gang(settings, job, kind.dialect, found)
        misfits = chosen.problems
        if misfits or kind.problems:  # Plan as if the settings were supported: other checks need a plan.
            if not kind.problems:
                settings = with_dialect(settings, kind.dialect)
            found, chosen = NOTHING, pipeline.select_gang(settings, job, kind.dialect, NOTHING)
        planned = pipeline.plan(request.template, request.run, settings, known, found)
    except InvalidTask as refusal:
        return replace(
            facts, task=replace(task, problems=refusal.problems), gang=request.settings.kfpytorch.gang
        )
    task = replace(task, plan=planned, roles=role_pods.build_role_pods(planned, chosen.gang))
    return replace(
        facts, task=task, gang=chosen.gang, gang_reasons=chosen.reasons, gang_problems=tuple(misfits)
    )

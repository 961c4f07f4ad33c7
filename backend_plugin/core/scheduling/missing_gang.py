"""Warnings about jobs whose pods select a gang scheduler although no gang is made for them."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import JobDraft, TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.adapter import SchedulerAdapter
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import NONE, PATH, GangSettings
from backend_plugin.core.scheduling.operator_gangs import BACKEND, OPERATOR
from backend_plugin.core.scheduling.registry import ADAPTERS

_PARTS: Final = ("labels", "annotations")
_MESSAGE: Final = (
    "selects {name}, but no gang is made: the replicas may start one by one, and jobs may block each other"
)


def find_warnings(
    job: TrainingJob, draft: JobDraft, chosen: GangSettings, capabilities: Capabilities
) -> Iterator[Problem]:
    """Yield a problem for each gang scheduler that pods of a job without a gang select."""
    if chosen.adapter is not None or capabilities.operator_scheduler or not _needs_gang(job):
        return
    for name, adapters in ADAPTERS.items():
        adapter = next(iter(adapters.values()))
        if not adapter.admits and (mark := next(_iter_scheduling_fields(draft, adapter), None)) is not None:
            field, value = mark
            message = _MESSAGE.format(name=name)
            yield build_problem(field, value, message, _describe_setting(name))


def _needs_gang(job: TrainingJob) -> bool:
    """True if the job has several replicas and its author does not decline a gang."""
    declined = job.gang is not None and job.gang.scheduler == NONE
    return not declined and sum(group.replicas for group in job.groups) > 1


def _iter_scheduling_fields(draft: JobDraft, adapter: SchedulerAdapter) -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each field by which a pod selects a scheduler; values may be empty."""
    for role, template in draft.pods.items():
        path = f"{role.value.lower()} pod"
        name = get_text(template, "spec", "schedulerName")
        if name and name == adapter.scheduler_name:
            yield f"{path}.schedulerName", name
        for part in _PARTS:
            values = get_mapping(template, "metadata", part)
            for key in values:
                if key.startswith(adapter.keys):
                    yield f"{path}.{part}.{key}", get_text(values, key)


def _describe_setting(name: str) -> str:
    if BACKEND not in ADAPTERS[name]:
        return f"write {PATH}: {{scheduler: {name}}} in the settings"
    return (
        f"write {PATH}: {{scheduler: {name}, pod-groups-by: {BACKEND}}} in the settings, or "
        f"pod-groups-by: {OPERATOR} if the training-operator runs with --gang-scheduler-name"
    )

"""Checks for labels, annotations and scheduler names that belong to a scheduler which is not selected."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.adapter import BACKEND, OPERATOR, SchedulerAdapter
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import NONE, PATH, GangSettings
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers
from backend_plugin.core.values import Manifest

_NO_GANG: Final = "no gang is made: the replicas may start one by one, and jobs may block each other"


def check_other_schedulers(draft: JobDraft, chosen: str) -> Iterator[Problem]:
    """Yield a problem for each label or annotation of a scheduler that cannot be combined with `chosen`."""
    schedulers, paths = list_schedulers(), _find_first_paths(draft)
    for name, other in schedulers.items():
        why = "" if name == chosen else _get_conflict_reason(schedulers[chosen], other)
        message = f"is for {name}, but the gang scheduler is {chosen}: {why}"
        for (key, value), path in paths.items() if why else ():
            if key.startswith(other.keys):
                remedy = "leave it out of the task, its PodTemplate and the settings"
                yield build_problem(path, value, message, remedy)


def _find_first_paths(draft: JobDraft) -> dict[tuple[str, str], str]:
    """Return the first path of each label or annotation, by its key and value; empty values are ignored."""
    paths: dict[tuple[str, str], str] = {}
    for path, key, value in (*_iter_entries(draft.metadata, "metadata"), *_iter_pod_entries(draft)):
        if value:
            paths.setdefault((key, value), path)
    return paths


def _get_conflict_reason(adapter: SchedulerAdapter, other: SchedulerAdapter) -> str:
    if not (adapter.admits or other.admits):
        return "a pod has one scheduler"
    return adapter.not_after_admission or other.not_after_admission


def find_warnings(
    job: TrainingJob, draft: JobDraft, chosen: GangSettings, capabilities: Capabilities
) -> Iterator[Problem]:
    """Yield a problem for each gang scheduler that the pods of a job name although the job has no gang."""
    is_single = sum(group.replicas for group in job.groups) == 1
    if is_single or job.gang.scheduler == NONE:
        return
    if chosen.adapter is not None or capabilities.operator_scheduler:
        return
    names = [
        (f"{role.value.lower()} pod.schedulerName", get_text(template, "spec", "schedulerName"))
        for role, template in draft.pods.items()
    ]
    entries = [*_iter_pod_entries(draft)]
    for name, adapter in list_schedulers().items():
        if adapter.admits:
            continue
        found = [
            (path, value, "selects") for path, value in names if value and value == adapter.scheduler_name
        ]
        # A pod with such a label or annotation may have another scheduler name.
        found += [(path, value, "is for") for path, key, value in entries if key.startswith(adapter.keys)]
        for path, value, relation in found[:1]:
            yield build_problem(path, value, f"{relation} {name}, but {_NO_GANG}", _describe_setting(name))


def _iter_pod_entries(draft: JobDraft) -> Iterator[tuple[str, str, str]]:
    for role, pod in draft.pods.items():
        yield from _iter_entries(get_mapping(pod, "metadata"), f"{role.value.lower()} pod")


def _iter_entries(metadata: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the key and the value of each label and annotation of an object."""
    for part in ("labels", "annotations"):
        values = get_mapping(metadata, part)
        for key in values:
            yield f"{path}.{part}.{key}", key, get_text(values, key)


def _describe_setting(name: str) -> str:
    if BACKEND not in ADAPTERS[name]:
        return f"write {PATH}: {{scheduler: {name}}} in the settings"
    return (
        f"write {PATH}: {{scheduler: {name}, pod-groups-by: {BACKEND}}} in the settings, or "
        f"pod-groups-by: {OPERATOR} if the training-operator runs with --gang-scheduler-name"
    )

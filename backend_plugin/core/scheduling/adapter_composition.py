"""Combines two adapters for one job: one admits the job through a queue, the other places its pods."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from backend_plugin.core.errors import Problem
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.adapter import SchedulerAdapter, SchedulingFields
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.registry import ADMISSION_ADAPTER, list_schedulers
from backend_plugin.core.values import Manifest


def with_admission(places: SchedulerAdapter) -> SchedulerAdapter:
    """Return the adapter for a job that an admission queue starts and whose pods `places` schedules."""

    def build_admission_fields(gang: GangSpec) -> SchedulingFields:
        # The priority class is set on the pods. A WorkloadPriorityClass with its name need not exist.
        return ADMISSION_ADAPTER.marks(replace(gang, queue=gang.admission_queue, priority_class_name=""))

    def build_combined_fields(gang: GangSpec) -> SchedulingFields:
        marks, before = places.marks(gang), build_admission_fields(gang)
        labels = {**marks.job_labels, **before.job_labels}
        return replace(marks, job_labels=labels, suspended=before.suspended)

    return replace(
        places,
        marks=build_combined_fields,
        understands=places.understands | ADMISSION_ADAPTER.understands,
        of_singles=replace(ADMISSION_ADAPTER, marks=build_admission_fields),
    )


def check_other_schedulers(draft: JobDraft, chosen: str) -> Iterator[Problem]:
    """Yield a problem for each label or annotation of a scheduler that conflicts with the selected one."""
    schedulers = list_schedulers()
    entries = [*iter_entries(draft.metadata, "metadata")]
    for role, pod in draft.pods.items():
        entries += iter_entries(get_mapping(pod, "metadata"), f"{role.value.lower()} pod")
    for name, other in schedulers.items():
        why = "" if name == chosen else _get_conflict_reason(schedulers[chosen], other)
        for path, value in _find_first_entries(entries, other) if why else ():
            message = f"is for {name}, but the gang scheduler is {chosen}: {why}"
            yield build_problem(
                path, value, message, "leave it out of the task, its PodTemplate and the settings"
            )


def _get_conflict_reason(mine: SchedulerAdapter, other: SchedulerAdapter) -> str:
    if not (mine.admits or other.admits):
        return "a pod has one scheduler"
    return mine.not_after_admission or other.not_after_admission


def _find_first_entries(
    entries: Iterable[tuple[str, str, str]], other: SchedulerAdapter
) -> list[tuple[str, str]]:
    """Return (path, value) of each entry (path, key, value) whose key belongs to the scheduler `other`.

    Of the entries with the same key and value, only the first one is returned.
    """
    first_paths: dict[tuple[str, str], str] = {}
    for path, key, value in entries:
        if value and key.startswith(other.keys):
            first_paths.setdefault((key, value), path)
    return [(path, value) for (_, value), path in first_paths.items()]


def iter_entries(metadata: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the key and the value of each label and annotation of an object."""
    for part in ("labels", "annotations"):
        values = get_mapping(metadata, part)
        for key in values:
            yield f"{path}.{part}.{key}", key, get_text(values, key)

"""Two adapters for one job: one admits it through a queue, the other places its pods."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import JobDraft
from backend_plugin.core.protojson import format_value
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.adapter import SchedulerAdapter, SchedulingFields
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.registry import Table
from backend_plugin.core.values import Manifest

_PARTS: Final = ("labels", "annotations")


def combine_adapters(places: SchedulerAdapter, admits: SchedulerAdapter) -> SchedulerAdapter:
    """Return the adapter for a job that a queue of `admits` starts and whose pods `places` schedules."""

    def build_admission_fields(gang: GangSpec) -> SchedulingFields:
        # The pods have one priority for both, and a WorkloadPriorityClass of that name need not exist.
        return admits.marks(replace(gang, queue=gang.admission_queue, priority_class_name=""))

    def build_combined_fields(gang: GangSpec) -> SchedulingFields:
        marks, before = places.marks(gang), build_admission_fields(gang)
        return replace(
            marks,
            job_labels={**marks.job_labels, **before.job_labels},
            suspended=before.suspended,
        )

    return replace(
        places,
        marks=build_combined_fields,
        understands=places.understands | admits.understands,
        of_singles=replace(admits, marks=build_admission_fields) if admits.takes_singles else None,
    )


def find_admission_adapter(table: Table) -> tuple[str, SchedulerAdapter] | None:
    """Return the name and the adapter of the scheduler that admits jobs; None if the table has none."""
    named = ((name, each) for name, adapters in table.items() for each in adapters.values())
    return next(((name, each) for name, each in named if each.admits), None)


def check_other_schedulers(draft: JobDraft, chosen: str, table: Table) -> Iterator[Problem]:
    """Yield a problem for each label or annotation that addresses a scheduler other than the selected one."""
    mine = next(iter(table[chosen].values()))
    for name, adapters in table.items():
        other = next(iter(adapters.values()))
        why = "" if name == chosen else _get_conflict_reason(mine, other)
        for path, key, value in _find_scheduler_keys(draft, other) if why else ():
            yield Problem(
                field=f"{path}.{key}",
                value=format_value(value),
                message=f"is for {name}, but the gang scheduler is {chosen}: {why}",
                remedy="leave it out of the task, its PodTemplate and the settings",
            )


def _get_conflict_reason(mine: SchedulerAdapter, other: SchedulerAdapter) -> str:
    """Return the reason why the two schedulers cannot both apply to a job; empty if they can."""
    if not (mine.admits or other.admits):
        return "a pod has one scheduler"
    return mine.not_after_admission or other.not_after_admission


def _find_scheduler_keys(draft: JobDraft, other: SchedulerAdapter) -> Iterator[tuple[str, str, str]]:
    """Yield path, key and value of each label or annotation of the scheduler `other`, except empty values.

    For an equal value in several places, yield only the first path.
    """
    first_paths: dict[tuple[str, str], str] = {}
    for path, metadata in _iter_metadata(draft):
        for part in _PARTS:
            values = get_mapping(metadata, part)
            for key in values:
                if key.startswith(other.keys) and get_text(values, key):
                    first_paths.setdefault((key, get_text(values, key)), f"{path}.{part}")
    return ((path, key, value) for (key, value), path in first_paths.items())


def _iter_metadata(draft: JobDraft) -> Iterator[tuple[str, Manifest]]:
    yield "metadata", draft.metadata
    for role, pod in draft.pods.items():
        yield f"{role.value.lower()} pod", get_mapping(pod, "metadata")

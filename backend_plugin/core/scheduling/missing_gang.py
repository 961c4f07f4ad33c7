"""Warnings about jobs whose pods select a gang scheduler although the server creates no gang for them."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.adapter import BACKEND, OPERATOR
from backend_plugin.core.scheduling.adapter_composition import iter_entries
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import NONE, PATH, GangSettings
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers

_NO_GANG: Final = "no gang is made: the replicas may start one by one, and jobs may block each other"


def find_warnings(
    job: TrainingJob, draft: JobDraft, chosen: GangSettings, capabilities: Capabilities
) -> Iterator[Problem]:
    """Yield a problem for each gang scheduler that the pods of a job name although the job has no gang."""
    if chosen.adapter is not None or capabilities.operator_scheduler or not _needs_gang(job):
        return
    names, entries = _list_scheduling_fields(draft)
    for name, adapter in list_schedulers().items():
        if adapter.admits:
            continue
        found = [(path, value, "selects") for path, value in names if value == adapter.scheduler_name]
        # A pod with such a label or annotation may have another scheduler name.
        found += [(path, value, "is for") for path, key, value in entries if key.startswith(adapter.keys)]
        for path, value, relation in found[:1]:
            yield build_problem(path, value, f"{relation} {name}, but {_NO_GANG}", _describe_setting(name))


def _needs_gang(job: TrainingJob) -> bool:
    """True if the job has several replicas and its author does not decline a gang."""
    declined = job.gang is not None and job.gang.scheduler == NONE
    return not declined and sum(group.replicas for group in job.groups) > 1


def _list_scheduling_fields(
    draft: JobDraft,
) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return (path, value) of each pod's scheduler name; (path, key, value) of each label and annotation."""
    names: list[tuple[str, str]] = []
    entries: list[tuple[str, str, str]] = []
    for role, template in draft.pods.items():
        path = f"{role.value.lower()} pod"
        if name := get_text(template, "spec", "schedulerName"):
            names.append((f"{path}.schedulerName", name))
        entries += iter_entries(get_mapping(template, "metadata"), path)
    return names, entries


def _describe_setting(name: str) -> str:
    if BACKEND not in ADAPTERS[name]:
        return f"write {PATH}: {{scheduler: {name}}} in the settings"
    return (
        f"write {PATH}: {{scheduler: {name}, pod-groups-by: {BACKEND}}} in the settings, or "
        f"pod-groups-by: {OPERATOR} if the training-operator runs with --gang-scheduler-name"
    )

"""Warnings about jobs whose pods select a gang scheduler although the server creates no gang for them."""

from collections.abc import Iterator
from typing import Final

import msgspec

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.adapter import SchedulerAdapter
from backend_plugin.core.scheduling.adapter_composition import iter_entries
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import NONE, PATH, GangSettings
from backend_plugin.core.scheduling.operator_gangs import BACKEND, OPERATOR
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers

_KEYS: Final = tuple(key for each in list_schedulers().values() for key in each.keys)
_MESSAGE: Final = (
    "selects {name}, but no gang is made: the replicas may start one by one, and jobs may block each other"
)


def find_warnings(
    job: TrainingJob, draft: JobDraft, chosen: GangSettings, capabilities: Capabilities
) -> Iterator[Problem]:
    """Yield a problem for each gang scheduler that the pods of a job name although the job has no gang."""
    if chosen.adapter is not None or capabilities.operator_scheduler or not _needs_gang(job):
        return
    fields = _list_scheduling_fields(draft)
    for name, adapter in list_schedulers().items():
        for field in fields:
            if field.selects(adapter):
                message = _MESSAGE.format(name=name)
                yield build_problem(field.path, field.value, message, _describe_setting(name))
                break


def _needs_gang(job: TrainingJob) -> bool:
    """True if the job has several replicas and its author does not decline a gang."""
    declined = job.gang is not None and job.gang.scheduler == NONE
    return not declined and sum(group.replicas for group in job.groups) > 1


class _SchedulingField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a pod that may select a scheduler."""

    path: str
    key: str = ""
    """The key of a label or an annotation; empty for the scheduler name."""
    value: str

    def selects(self, adapter: SchedulerAdapter) -> bool:
        """True if the field selects the scheduler of the adapter for the placement of its pod."""
        if adapter.admits:
            return False
        return self.key.startswith(adapter.keys) if self.key else self.value == adapter.scheduler_name


def _list_scheduling_fields(draft: JobDraft) -> list[_SchedulingField]:
    """Return the scheduler names of the pods, and their labels and annotations of gang schedulers."""
    fields = []
    for role, template in draft.pods.items():
        path = f"{role.value.lower()} pod"
        if name := get_text(template, "spec", "schedulerName"):
            fields.append(_SchedulingField(path=f"{path}.schedulerName", value=name))
        fields += [
            _SchedulingField(path=where, key=key, value=value)
            for where, key, value in iter_entries(get_mapping(template, "metadata"), path)
            if key.startswith(_KEYS)
        ]
    return fields


def _describe_setting(name: str) -> str:
    if BACKEND not in ADAPTERS[name]:
        return f"write {PATH}: {{scheduler: {name}}} in the settings"
    return (
        f"write {PATH}: {{scheduler: {name}, pod-groups-by: {BACKEND}}} in the settings, or "
        f"pod-groups-by: {OPERATOR} if the training-operator runs with --gang-scheduler-name"
    )

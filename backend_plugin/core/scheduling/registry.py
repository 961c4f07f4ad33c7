"""The adapters of all gang schedulers, by their names in the settings.

To add a scheduler, add a module to `schedulers` and a row to `ADAPTERS`. If a cluster has several schedulers
with the same `DetectionRank`, the one in the first row is selected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling.adapter import SchedulerAdapter, SchedulingFields
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.schedulers import coscheduling, kai, kueue, volcano, yunikorn
from backend_plugin.core.scheduling.status_parser import StatusParser
from backend_plugin.core.values import Manifest

ADAPTERS: Final[Mapping[str, Mapping[str, SchedulerAdapter]]] = {
    "yunikorn": yunikorn.ADAPTERS,
    "volcano": volcano.ADAPTERS,
    "coscheduling": coscheduling.ADAPTERS,
    "kai": kai.ADAPTERS,
    "kueue": kueue.ADAPTERS,
}
"""Adapters by the name of the scheduler, then by the creator of the pod groups.

The second key is ``""`` if the scheduler has only one adapter.
"""


def list_schedulers() -> Mapping[str, SchedulerAdapter]:
    """Return one adapter of each scheduler by name, for properties that its adapters have in common."""
    return {name: next(iter(adapters.values())) for name, adapters in ADAPTERS.items()}


ADMISSION_SCHEDULER: Final = next(name for name, each in list_schedulers().items() if each.admits)
"""The scheduler whose queues admit jobs before another scheduler places their pods."""
ADMISSION_ADAPTER: Final = list_schedulers()[ADMISSION_SCHEDULER]

STATUS_PARSERS: Final[Sequence[StatusParser]] = [each.status_parser for each in list_schedulers().values()]
"""The status parsers of all schedulers. All apply, because a job may be older than the current settings."""

IN_TREE: Final = "in-tree"
"""The gang scheduling of Kubernetes itself, which authors can request but a PyTorchJob cannot use."""


def with_admission(places: SchedulerAdapter) -> SchedulerAdapter:
    """Return the adapter for a job that a queue of Kueue admits before another scheduler places its pods.

    The result is `places`, the adapter of that scheduler, with the fields and options of the queue added.
    """

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


def can_be_gang_object(name: str) -> bool:
    """True if `name` may be that of a placeholder pod, or of a pod group that is not named like its job."""
    return bool(name) and (is_placeholder_name(name) or parse_job_name(name) != name)


def is_placeholder_name(name: str) -> bool:
    """True for the name of a placeholder pod, which reserves resources for a replica."""
    return any(parser.places is not None and parser.places.fullmatch(name) for parser in STATUS_PARSERS)


def parse_job_name(name: str) -> str:
    """Return the job name that belongs to the name of a pod group; most schedulers use the same name."""
    for parser in STATUS_PARSERS:
        if parser.groups is not None and (match := parser.groups.fullmatch(name)) is not None:
            return match["job"]
    return name


def is_controller_managed(group: PodGroup) -> bool:
    """True if a controller, not the scheduler that places the pods, writes the status of the pod group."""
    return any(group.api == parser.api and parser.controlled for parser in STATUS_PARSERS)


def get_deactivation(group: PodGroup) -> Manifest | None:
    """Return the patch of a pod group that stops its queue from admitting the job; None if there is none."""
    return next((parser.deactivation for parser in STATUS_PARSERS if group.api == parser.api), None)


def has_queue_position(group: PodGroup) -> bool:
    """True if the pod group waits in an ordered queue, so that it has a position."""
    return bool(group.queue) and any(
        group.api == parser.api and parser.queued(group) for parser in STATUS_PARSERS
    )

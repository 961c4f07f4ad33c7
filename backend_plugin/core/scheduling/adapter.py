"""What a gang scheduler has to be told, as data, and how a job is given it.

Lives here: the shape that every module of `schedulers` fills in, and the one place where it is put into a
manifest. Does not: any scheduler.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import shown
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling.gang import Gang, Member
from backend_plugin.core.values import JsonValue, Manifest

QUEUE: Final = "queue"
TIMEOUT: Final = "timeout"
MIN_MEMBER: Final = "min_member"
SCHEDULER_NAME: Final = "scheduler-name"
"""What a scheduler may understand beside the gang itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a scheduler, or the operator for it, reads off a job."""

    job_labels: Mapping[str, str] = field(default_factory=dict)
    run_policy: Manifest = field(default_factory=dict)
    """Fields of ``spec.runPolicy``."""
    scheduler_name: str = ""
    """Of all pods; empty: theirs is left as it is."""
    priority_class_name: str = ""
    """The same."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Callable[[Member], Mapping[str, str]] = lambda _: {}
    """By the role that they are for."""


def nothing_beside(_: Gang) -> Sequence[Manifest]:
    """No object beside the job."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One scheduler, in one of the ways in which it is used."""

    marks: Callable[[Gang], Marks]
    companions: Callable[[Gang], Sequence[Manifest]] = nothing_beside
    """The objects that we make beside the job, one at most, without their metadata, which are the job's."""
    makes: tuple[str, str] | None = None
    """Their ``apiVersion`` and ``kind``; nothing else is ever made or deleted for this scheduler."""
    scheduler_name: str = ""
    """What pods call it where the platform says nothing else."""
    understands: frozenset[str] = frozenset()
    takes_singles: bool = False
    """Whether a job of one replica concerns it, too."""
    needs_queue: bool = False


def decorated(manifest: Manifest, gang: Gang, adapter: Adapter) -> Manifest:
    """The job as the scheduler wants it, where `contradictions` has found none."""
    marks = adapter.marks(gang)
    spec, metadata = section(manifest, "spec"), section(manifest, "metadata")
    replicas = section(spec, "pytorchReplicaSpecs")
    return {
        **manifest,
        "metadata": _with(metadata, "labels", marks.job_labels),
        "spec": {
            **spec,
            "pytorchReplicaSpecs": {
                **replicas,
                **{
                    member.role.value: _replica(section(replicas, member.role.value), member, marks)
                    for member in gang.members
                },
            },
            "runPolicy": {**section(spec, "runPolicy"), **marks.run_policy},
        },
    }


def contradictions(manifest: Manifest, gang: Gang, adapter: Adapter) -> Iterator[Problem]:
    """Where a pod or the task has said something else of its own; one text of two would be lost."""
    marks = adapter.marks(gang)
    metadata = section(manifest, "metadata")
    yield from _differing(section(metadata, "labels"), marks.job_labels, "metadata.labels")
    for member in gang.members:
        template = section(manifest, "spec", "pytorchReplicaSpecs", member.role.value, "template")
        path = f"{member.name} pod"
        yield from _differing(section(template, "metadata", "labels"), marks.pod_labels, f"{path}.labels")
        said = section(template, "metadata", "annotations")
        yield from _differing(said, marks.pod_annotations(member), f"{path}.annotations")
        wanted = {"schedulerName": gang.scheduler_name, "priorityClassName": marks.priority_class_name}
        yield from _differing(section(template, "spec"), wanted, path)


def _differing(said: Manifest, wanted: Mapping[str, str], path: str) -> Iterator[Problem]:
    for key, value in wanted.items():
        there = text(said, key)
        # An empty one is a placeholder, as in the published guide.
        if there and value and there != value:
            yield Problem(
                field=f"{path}.{key}",
                value=shown(there),
                message=f"contradicts the gang, for which it is {value}",
                remedy="leave it out of the task, its PodTemplate and the settings, or say the same",
            )


def _replica(replica: Manifest, member: Member, marks: Marks) -> Manifest:
    template = section(replica, "template")
    metadata = _with(section(template, "metadata"), "labels", marks.pod_labels)
    metadata = _with(metadata, "annotations", marks.pod_annotations(member))
    names: Mapping[str, JsonValue] = {
        "schedulerName": marks.scheduler_name,
        "priorityClassName": marks.priority_class_name,
    }
    spec = {**section(template, "spec"), **{key: value for key, value in names.items() if value}}
    return {**replica, "template": {**template, "metadata": metadata, "spec": spec}}


def _with(metadata: Manifest, key: str, more: Mapping[str, str]) -> Manifest:
    return {**metadata, key: {**section(metadata, key), **more}} if more else metadata

"""What a gang scheduler has to be told, as data, and how a job is given it.

Lives here: the shape that every module of `schedulers` fills in, and the one place where it is put into a
manifest. Does not: any scheduler; nor two of them for one job, see `combination`.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import shown
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.gang import Gang, Member
from backend_plugin.core.scheduling.words import Words
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
    other_words: Mapping[str, str] = field(default_factory=dict)
    """What labels or annotations of pods may say of the same in words that we do not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """The object that we make beside the job, under its name."""

    api_version: str
    kind: str
    spec: Callable[[Gang], Manifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKind:
    """The objects that are a scheduler's queues."""

    group: str
    plural: str
    is_namespaced: bool = False


class Rank(enum.IntEnum):
    """How sure it is that a cluster's jobs are to be told of a gang in this way; the lowest goes first."""

    ADMISSION = 1
    """The cluster gives the scheduler every pod, whatever the pod says."""
    OPERATOR = 2
    """The operator tells the scheduler of every job."""
    QUEUE = 3
    """The scheduler is there, and has the queue that the platform names."""
    API = 4
    """The scheduler's kinds are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """That a cluster has it."""

    why: str
    """A part of a sentence."""
    scheduler_name: str = ""
    """What pods call it there; empty: as everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """How it is told that a cluster is to be used in this way."""

    rank: Rank
    sees: Callable[[Findings, str], Seen | None]
    """Whether the cluster has it, and the queue that is wanted; None: it cannot be said."""


def nothing_against(_: Findings) -> str:
    """Whatever is found."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One scheduler, in one of the ways in which it is used."""

    marks: Callable[[Gang], Marks]
    companion: Companion | None = None
    """Nothing else is ever made or deleted for this scheduler."""
    scheduler_name: str = ""
    """What pods call it where the platform says nothing else."""
    understands: frozenset[str] = frozenset()
    keys: Sequence[str] = ()
    """How labels and annotations begin by which a job or a pod speaks to it."""
    sighting: Sighting | None = None
    """None: it is for those who name it."""
    denied: Callable[[Findings], str] = nothing_against
    """Why a cluster of which this is found cannot be used so: a part of a sentence; empty if nothing is."""
    queues: QueueKind | None = None
    """None: they are no objects."""
    takes_singles: bool = False
    """Whether a job of one replica concerns it, too."""
    of_singles: "Adapter | None" = None
    """What such a job is told instead; None: nothing."""
    needs_queue: bool = False
    by_operator: bool = False
    """Whether the operator makes its groups."""
    counts_all: bool = False
    """Whether all replicas have to find a place, also those above the fewest."""
    words: Words = field(default_factory=Words)
    """What it says of jobs that wait."""
    admits: bool = False
    """Whether it decides when a job begins, and leaves to another scheduler where its pods go."""
    not_after_admission: str = ""
    """Why no other may let its jobs begin: a part of a sentence; empty: another may."""

    @property
    def makes(self) -> tuple[str, str] | None:
        """The ``apiVersion`` and ``kind`` of what stands beside its jobs."""
        return None if self.companion is None else (self.companion.api_version, self.companion.kind)

    def companions(self, gang: Gang) -> Sequence[Manifest]:
        """The objects beside a job, one at most, without their metadata, which are the job's."""
        made = self.companion
        if made is None:
            return ()
        return [{"apiVersion": made.api_version, "kind": made.kind, "spec": made.spec(gang)}]


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
        words = marks.other_words
        others = {key: words[key] for key in words if key not in marks.pod_labels}
        yield from _differing(section(template, "metadata", "labels"), others, f"{path}.labels")
        yield from _differing(said, words, f"{path}.annotations")
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

"""Scheduler adapters: the data and functions that support a gang scheduler, and their use for a job."""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import structs

from backend_plugin.core.errors import Problem
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang import GangRole, GangSpec
from backend_plugin.core.scheduling.status_parser import StatusParser
from backend_plugin.core.values import Manifest, omit_empty

FLAG: Final = "--gang-scheduler-name"
"""The flag with which the training-operator creates a pod group for every job."""
BACKEND: Final = "backend"
OPERATOR: Final = "operator"
"""`OPERATOR` and `BACKEND` are the possible creators of a job's pod group: the operator or this server."""
QUEUE: Final = "queue"
TIMEOUT: Final = "schedule-timeout"
MIN_MEMBER: Final = "min_member"
SCHEDULER_NAME: Final = "scheduler-name"
"""`QUEUE`, `TIMEOUT`, `MIN_MEMBER`, `SCHEDULER_NAME`: the gang options that a scheduler may support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingFields:
    """The fields, labels and annotations of a job that its scheduler, or the job's operator, reads."""

    job_labels: Mapping[str, str] = field(default_factory=dict)
    scheduling_policy: Manifest = field(default_factory=dict)
    """The fields of the operator's scheduling policy, for pod groups that the operator creates."""
    jobset_annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of a JobSet that also has pods outside the gang, such as initializers."""
    suspended: bool = False
    """True if the job is created suspended, so that a queue starts it."""
    scheduler_name: str = ""
    """The `schedulerName` of all pods; empty if it is left unchanged."""
    priority_class_name: str = ""
    """The priority class of all pods; empty if it is left unchanged."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Callable[[GangRole], Mapping[str, str]] = lambda _: {}
    """Return the annotations of the pods of a role."""
    permitted_values: Mapping[str, str] = field(default_factory=dict)
    """Pod labels and annotations that the author or the platform may set, but only to these values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """The kind and spec of an object, such as a PodGroup, that the server creates with the job's name."""

    api_version: str
    kind: str
    spec: Callable[[GangSpec], Manifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerResource:
    """An API resource of a scheduler."""

    group: str
    plural: str
    kind: str
    version: str = ""
    """The API version; empty for the version that the cluster prefers."""
    is_namespaced: bool = False
    label: str = ""
    """The label of a job that names an object of this resource; empty if there is none."""
    parent_field: str = ""
    """The field of a queue's spec with the name of its parent queue; empty if there is none."""
    example: str = ""
    """The manifest of a valid object; ``NAME``, ``NAMESPACE`` and ``PARENT`` are placeholders."""


class DetectionRank(enum.IntEnum):
    """How a gang scheduler was detected. The detected scheduler with the lowest rank is selected."""

    ADMISSION = 1
    """A webhook sets the scheduler on every pod and overwrites the one that the pod specifies."""
    OPERATOR = 2
    """The operator creates a pod group for every job."""
    QUEUE = 3
    """The scheduler is installed and has the queue that the platform or the author names."""
    API = 4
    """The cluster serves the API of the scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The evidence that a cluster has a gang scheduler, found in the capabilities of the cluster."""

    rank: DetectionRank
    why: str
    """The reason why the scheduler counts as detected, as a clause for a message."""
    scheduler_name: str = ""
    """The `schedulerName` of pods on this cluster; empty for the scheduler's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAdapter:
    """The data and functions that support one gang scheduler.

    A scheduler has two adapters, one for each creator, if both the operator and this server can create its
    pod groups.
    """

    marks: Callable[[GangSpec], SchedulingFields]
    """Return the fields, labels and annotations that a job needs for the scheduling of its gang."""
    title: str
    companion: Companion | None = None
    """The object that this server creates for a job of this scheduler; None if it creates none."""
    scheduler_name: str = ""
    """The `schedulerName` of pods, if the platform does not specify one."""
    understands: frozenset[str] = frozenset()
    """The gang options that the scheduler supports, such as `QUEUE`."""
    keys: tuple[str, ...] = ()
    """The prefixes of the labels and annotations that address this scheduler."""
    gang_keys: Sequence[str] = ()
    """The labels and annotations of a pod that identify its gang; each attempt needs its own values."""
    groups_all_jobs: bool = False
    """True if the scheduler creates a pod group for every job whose pods have its `schedulerName`."""
    detect: Callable[[Capabilities, str], Detection | None] | None = None
    """Return the evidence that a cluster has the scheduler, from its capabilities and the requested queue.

    Return None without evidence.

    The field is None if a job uses the scheduler only when the settings or the author name it.
    """
    denied: Callable[[Capabilities], str] = lambda _: ""
    """Return a reason, besides those of `find_denial`, why a cluster cannot use the scheduler; else empty."""
    program: str = ""
    """A substring of the names of the scheduler's images; empty if they do not identify it."""
    oldest: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """The minimum version of the scheduler, by kind of job; other kinds of job work with any version."""
    groups: SchedulerResource | None = None
    """The API resource of the scheduler's pod groups, which the server watches; None if it has none."""
    queues: SchedulerResource | None = None
    """The API resource of the scheduler's queues; None if its queues are not API objects."""
    parent_queues: SchedulerResource | None = None
    """The API resource of the parent queues of the scheduler's queues; None if there are none."""
    priorities: SchedulerResource | None = None
    """The API resource of the priorities of jobs; None if a job has the priority of its pods."""
    takes_singles: bool = False
    """True if the adapter also applies to a job with one replica."""
    of_singles: "SchedulerAdapter | None" = None
    """The adapter that replaces this one for a job with one replica; None if there is none."""
    needs_queue: bool = False
    """True if a job needs a queue, from its author or from the settings."""
    matches_flag: Callable[[str], bool] | None = None
    """Return True if the operator creates pod groups of this scheduler for a value of `FLAG`.

    The field is None if the operator does not create the pod groups.
    """
    counts_all: bool = False
    """True if the scheduler counts all replicas, including those above the minimum of an elastic job."""
    status_parser: StatusParser = field(default_factory=StatusParser)
    admits: bool = False
    """True if the scheduler only decides when a job starts, and another scheduler places the pods."""
    not_after_admission: str = ""
    """The reason why jobs of this scheduler cannot wait in an admission queue first; empty if they can."""

    def find_denial(self, capabilities: Capabilities) -> str:
        """Return the reason why a cluster cannot use the scheduler, as a clause; empty if it can."""
        flag = capabilities.operator_scheduler
        denial = "" if flag is None else self._find_flag_denial(flag)
        if denial := denial or self.denied(capabilities):
            return denial
        if self.groups is not None and capabilities.has_api(self.groups.group) is False:
            return f"the cluster has no {self.groups.group}"
        return ""

    def _find_flag_denial(self, flag: str) -> str:
        if self.matches_flag is not None and not self.matches_flag(flag):
            runs = f"with {FLAG}={flag}, and creates other" if flag else f"without {FLAG}, and creates no"
            return f"the training-operator runs {runs} groups"
        if self.companion is not None and flag:
            return f"the training-operator runs with {FLAG}={flag}, and overwrites the groups of this server"
        return ""


def build_adapters(
    by_operator: SchedulerAdapter, companion: Companion, marks: Callable[[GangSpec], SchedulingFields]
) -> Mapping[str, SchedulerAdapter]:
    """Return the two adapters of a scheduler whose pod groups the operator or this server can create.

    The key of an adapter is the creator of the pod groups, `OPERATOR` or `BACKEND`. The adapter for `BACKEND`
    is a copy of `by_operator` with `companion`, which describes the pod group of a job, and `marks`, which
    returns the fields that assign the pods to this group.
    """
    group, matches = companion.api_version.partition("/")[0], by_operator.matches_flag

    def detect_flag(capabilities: Capabilities, _: str) -> Detection | None:
        flag = capabilities.operator_scheduler
        if not flag or matches is None or not matches(flag):
            return None
        why = f"the training-operator runs with {FLAG}={flag}"
        # The operator accepts the name of Volcano in any case, and writes it in lower case.
        name = flag.lower() if flag.lower() == by_operator.scheduler_name else flag
        return Detection(rank=DetectionRank.OPERATOR, why=why, scheduler_name=name)

    def detect_api(capabilities: Capabilities, _: str) -> Detection | None:
        # If the flag is unknown, the operator may overwrite a pod group that this server creates.
        if capabilities.operator_scheduler != "" or not capabilities.has_api(group):
            return None
        why = f"the cluster has {group}, and the operator creates no pod groups"
        return Detection(rank=DetectionRank.API, why=why)

    by_backend = replace(by_operator, marks=marks, matches_flag=None, companion=companion, detect=detect_api)
    return {OPERATOR: replace(by_operator, detect=detect_flag), BACKEND: by_backend}


def with_scheduling(
    draft: JobDraft, gang: GangSpec, adapter: SchedulerAdapter, annotations: Mapping[str, str]
) -> JobDraft:
    """Return the draft with the fields of its scheduler, and with `annotations` added to those of the job.

    `check_conflicts` must have found no problem.
    """
    marks = adapter.marks(gang)
    labelled = _with_entries(draft.metadata, "labels", marks.job_labels)
    return structs.replace(
        draft,
        metadata=_with_entries(labelled, "annotations", annotations),
        pods={
            member.role: _with_pod_fields(draft.pods[member.role], member, marks) for member in gang.members
        },
        scheduling_policy=marks.scheduling_policy,
        jobset_annotations=marks.jobset_annotations,
        suspended=marks.suspended,
    )


def check_conflicts(draft: JobDraft, gang: GangSpec, adapter: SchedulerAdapter) -> Iterator[Problem]:
    """Yield a problem for each value of a pod or the job that differs from the value that the gang needs."""
    marks = adapter.marks(gang)
    yield from _check_values(get_mapping(draft.metadata, "labels"), marks.job_labels, "metadata.labels")
    for member in gang.members:
        template = draft.pods[member.role]
        path = f"{member.name} pod"
        required = {"labels": marks.pod_labels, "annotations": marks.pod_annotations(member)}
        for part, values in required.items():
            present = get_mapping(template, "metadata", part)
            yield from _check_values(present, {**marks.permitted_values, **values}, f"{path}.{part}")
        pod_fields = {"schedulerName": gang.scheduler_name, "priorityClassName": marks.priority_class_name}
        yield from _check_values(get_mapping(template, "spec"), pod_fields, path)


def _check_values(present: Manifest, required: Mapping[str, str], path: str) -> Iterator[Problem]:
    for key, value in required.items():
        there = get_text(present, key)
        # An empty value counts as not set; Flyte's guide uses it as a placeholder.
        if there and value and there != value:
            message = f"conflicts with the gang, which needs {value}"
            remedy = "leave it out of the task, its PodTemplate and the settings, or write the same value"
            yield build_problem(f"{path}.{key}", there, message, remedy)


def _with_pod_fields(template: Manifest, member: GangRole, marks: SchedulingFields) -> Manifest:
    metadata = _with_entries(get_mapping(template, "metadata"), "labels", marks.pod_labels)
    metadata = _with_entries(metadata, "annotations", marks.pod_annotations(member))
    names = {"schedulerName": marks.scheduler_name, "priorityClassName": marks.priority_class_name}
    spec = {**get_mapping(template, "spec"), **omit_empty(names)}
    return {**template, "metadata": metadata, "spec": spec}


def _with_entries(metadata: Manifest, key: str, more: Mapping[str, str]) -> Manifest:
    return {**metadata, key: {**get_mapping(metadata, key), **more}} if more else metadata

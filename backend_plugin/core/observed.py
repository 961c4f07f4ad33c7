"""Records of the observed state of a job, with a reader for each kind of object.

The readers accept any JSON and never raise, so that an edited object cannot prevent a verdict.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Final

import msgspec

from backend_plugin.core.conditions import Condition as Condition
from backend_plugin.core.conditions import PodGroup as PodGroup
from backend_plugin.core.conditions import read_conditions as read_conditions
from backend_plugin.core.conditions import read_pod_group as read_pod_group
from backend_plugin.core.error_files import ErrorFile, read_error_file
from backend_plugin.core.job import TRAINER
from backend_plugin.core.reading import (
    get_bounded_text,
    get_int,
    get_interned,
    get_mapping,
    get_mappings,
    get_text,
    get_text_map,
    get_time,
    intern_text,
)
from backend_plugin.core.values import Manifest

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LABEL: Final = "training.kubeflow.org/"
JOB_NAME: Final = _LABEL + "job-name"
"""The operator's label of a replica that contains the name of its job."""
_ENDS: Final = ("Succeeded", "Failed")
PLACE_OF: Final = "kfpytorch.flyte.org/place-of"
"""The label of a placeholder pod that contains the name of the job."""
PLACE: Final = "kfpytorch.flyte.org/place"
"""The label of a placeholder pod that contains the replica role in lower case."""


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The replicas of one role in the spec of a job."""

    role: str
    """``master`` or ``worker``."""
    replicas: int
    restarts: bool = False
    """True if the restart policy restarts a failed replica."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The observed state of a PyTorchJob."""

    name: str
    namespace: str = ""
    uid: str = ""
    created: datetime | None = None
    generation: int | None = None
    """The number of versions of its spec."""
    deleting: bool = False
    groups: tuple[ReplicaSpec, ...] = ()
    """The master first."""
    elastic: bool = False
    scales: bool = False
    """True if it can run with fewer replicas than its spec has."""
    nproc_per_node: int | None = None
    clean_pod_policy: str = ""
    active_deadline: timedelta | None = None
    conditions: tuple[Condition, ...] = ()
    started: datetime | None = None
    """The time at which the operator had created all pods; they may not run yet."""
    completed: datetime | None = None
    expires: bool = False
    """True if it has a time to live after its end."""
    owned: bool = False
    """True if it has an owner reference."""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def end_condition(self) -> Condition | None:
        """The condition that reports its end; None before."""
        return next((each for each in self.conditions if each.true and each.type in _ENDS), None)

    @property
    def replicas(self) -> int:
        """The number of replicas in its spec."""
        return sum(group.replicas for group in self.groups)


class ContainerTermination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of one container run."""

    exit_code: int | None
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    finished: datetime | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of a container in a pod."""

    name: str
    image: str = ""
    id: str = ""
    init: bool = False
    waiting: str = ""
    """The reason of the waiting state; empty if it does not wait."""
    waiting_message: str = ""
    running_since: datetime | None = None
    ended: ContainerTermination | None = None
    last: ContainerTermination | None = None
    """The end of its previous run, if there was one."""
    restarts: int = 0

    @property
    def has_started(self) -> bool:
        """True if it runs or has run."""
        return bool(self.running_since or self.ended or self.last or self.restarts)


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod of a replica, or the placeholder pod of a gang scheduler."""

    name: str
    uid: str = ""
    job_name: str = ""
    """The job's name from the label of a replica or placeholder pod; empty for any other pod."""
    owners: tuple[str, ...] = ()
    role: str = ""
    index: int = 0
    place: str = ""
    """The replica role that a placeholder pod reserves capacity for; empty for a replica."""
    created: datetime | None = None
    deleted: datetime | None = None
    """The time of the deletion request."""
    node: str = ""
    hostname: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    scheduled: Condition | None = None
    disrupted: Condition | None = None
    """The condition `DisruptionTarget` if it is true."""
    ready: Condition | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

    @property
    def replica(self) -> str:
        """The name of its replica, such as ``worker-0``; the pod's name if it has no role."""
        return f"{self.role}-{self.index}" if self.role else self.name

    @property
    def primary(self) -> Container | None:
        """The trainer container; the first one if no container has its name."""
        for container in self.containers:
            if container.name == TRAINER:
                return container
        return self.containers[0] if self.containers else None

    @property
    def is_bound(self) -> bool:
        """True if it is bound to a Kubernetes node."""
        return bool(self.node) or (self.scheduled is not None and self.scheduled.true)


def is_replica(pod: Pod, job: Job) -> bool:
    """True if the job owns the pod, and the pod is not a placeholder.

    Labels are not sufficient, because any user with edit permission can set them. A job without a uid comes
    from a file, so its pods are not checked for ownership.
    """
    return not pod.place and pod.job_name in ("", job.name) and (not job.uid or job.uid in pod.owners)


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event about an object. It is only a hint, because events may be dropped and expire."""

    reason: str
    action: str = ""
    """The action of the reporting controller; some controllers put the reason here."""
    message: str = ""
    kind: str = ""
    name: str = ""
    warning: bool = False
    at: datetime | None = None
    repeated: bool = False
    """True if it stands for several reports, which may have had other messages."""


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The observed state of one job at one moment."""

    job: Job | None
    """The job; None if it does not exist (any more)."""
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    error_files: tuple[ErrorFile, ...] = ()
    outputs: bool | None = None
    """True if ``outputs.pb`` exists; None if not checked."""
    looking: bool = False
    """True while the error files and outputs are being read."""


def read_observed(said: Manifest) -> Observed:
    """Read a mapping with the keys ``job, pods, events, pod_groups, error_files, outputs``."""
    job = said.get("job")
    outputs = said.get("outputs")
    return Observed(
        job=read_job(job) if isinstance(job, Mapping) and job else None,
        pods=tuple(read_pod(each) for each in get_mappings(said, "pods")),
        events=tuple(read_event(each) for each in get_mappings(said, "events")),
        pod_groups=tuple(read_pod_group(each) for each in get_mappings(said, "pod_groups")),
        error_files=tuple(read_error_file(each) for each in get_mappings(said, "error_files")),
        outputs=outputs if isinstance(outputs, bool) else None,
    )


def read_job(manifest: Manifest) -> Job:
    """Read a PyTorchJob as the API server returns it."""
    metadata, spec = get_mapping(manifest, "metadata"), get_mapping(manifest, "spec")
    status, policy, elastic = (
        get_mapping(manifest, "status"),
        get_mapping(spec, "runPolicy"),
        get_mapping(spec, "elasticPolicy"),
    )
    deadline = get_int(policy, "activeDeadlineSeconds")
    return Job(
        name=get_interned(metadata, "name"),
        namespace=get_interned(metadata, "namespace"),
        uid=get_interned(metadata, "uid"),
        created=get_time(metadata, "creationTimestamp"),
        generation=get_int(metadata, "generation"),
        deleting=bool(metadata.get("deletionTimestamp")),
        groups=_read_replica_specs(get_mapping(spec, "pytorchReplicaSpecs")),
        elastic=bool(elastic),
        scales=get_int(elastic, "minReplicas") != get_int(elastic, "maxReplicas"),
        nproc_per_node=get_int(spec, "nprocPerNode") or get_int(elastic, "nProcPerNode"),
        clean_pod_policy=get_interned(policy, "cleanPodPolicy"),
        active_deadline=None if deadline is None or deadline < 0 else timedelta(seconds=deadline),
        conditions=read_conditions(status),
        started=get_time(status, "startTime"),
        completed=get_time(status, "completionTime"),
        expires=get_int(policy, "ttlSecondsAfterFinished") is not None,
        owned=bool(get_mappings(metadata, "ownerReferences")),
        annotations=get_text_map(metadata, "annotations"),
    )


def _read_replica_specs(specs: Manifest) -> tuple[ReplicaSpec, ...]:
    said = {role.lower(): get_mapping(specs, role) for role in specs}
    return tuple(
        ReplicaSpec(
            role=role,
            replicas=_read_replica_count(said[role]),
            restarts=get_text(said[role], "restartPolicy") in ("Always", "ExitCode", "OnFailure"),
        )
        for role in ("master", "worker")
        if role in said
    )


# A limit on the work per job, because some results have an entry for each replica.
_MOST_REPLICAS: Final = 100_000


def _read_replica_count(spec: Manifest) -> int:
    said = get_int(spec, "replicas")
    return 1 if said is None else max(0, min(said, _MOST_REPLICAS))


def read_pod(manifest: Manifest) -> Pod:
    """Read a pod as the API server returns it."""
    metadata, spec, status = (get_mapping(manifest, key) for key in ("metadata", "spec", "status"))
    labels = get_mapping(metadata, "labels")
    name = get_interned(metadata, "name")
    by_type = {condition.type: condition for condition in read_conditions(status)}
    disrupted = by_type.get("DisruptionTarget")
    return Pod(
        name=name,
        uid=get_text(metadata, "uid"),
        job_name=get_interned(labels, JOB_NAME) or get_interned(labels, PLACE_OF),
        owners=tuple(get_interned(each, "uid") for each in get_mappings(metadata, "ownerReferences")),
        role=intern_text(get_text(labels, _LABEL + "replica-type").lower()),
        index=max(0, get_int(labels, _LABEL + "replica-index") or 0),
        place=get_interned(labels, PLACE),
        created=get_time(metadata, "creationTimestamp"),
        deleted=_compute_deletion_time(metadata),
        node=get_interned(spec, "nodeName"),
        hostname=get_interned(spec, "hostname") or name,
        phase=get_interned(status, "phase"),
        reason=get_interned(status, "reason"),
        message=get_bounded_text(status, "message"),
        started=get_time(status, "startTime"),
        scheduled=by_type.get("PodScheduled"),
        # The condition stays with the status False after a drain that was cancelled.
        disrupted=disrupted if disrupted is not None and disrupted.true else None,
        ready=by_type.get("Ready"),
        containers=tuple(_read_container(each) for each in get_mappings(status, "containerStatuses")),
        init_containers=tuple(
            _read_container(each, init=True) for each in get_mappings(status, "initContainerStatuses")
        ),
    )


def _compute_deletion_time(metadata: Manifest) -> datetime | None:
    # The deletionTimestamp of a pod is the end of its grace period.
    at = get_time(metadata, "deletionTimestamp")
    grace = timedelta(seconds=max(0, get_int(metadata, "deletionGracePeriodSeconds") or 0))
    return at - grace if at is not None and at - _EPOCH > grace else at


def _read_container(said: Manifest, *, init: bool = False) -> Container:
    state = get_mapping(said, "state")
    running, waiting = get_mapping(state, "running"), get_mapping(state, "waiting")
    return Container(
        name=get_interned(said, "name"),
        image=get_interned(said, "image"),
        id=get_text(said, "containerID"),
        init=init,
        waiting=get_interned(waiting, "reason"),
        waiting_message=get_bounded_text(waiting, "message"),
        running_since=get_time(running, "startedAt"),
        ended=_read_termination(state),
        last=_read_termination(get_mapping(said, "lastState")),
        restarts=max(0, get_int(said, "restartCount") or 0),
    )


def _read_termination(state: Manifest) -> ContainerTermination | None:
    said = state.get("terminated")
    if not isinstance(said, Mapping):
        return None
    return ContainerTermination(
        exit_code=get_int(said, "exitCode"),
        reason=get_interned(said, "reason"),
        message=get_bounded_text(said, "message"),
        started=get_time(said, "startedAt"),
        finished=get_time(said, "finishedAt"),
    )


def read_event(manifest: Manifest) -> Event:
    """Read an event of core/v1 or of events.k8s.io/v1."""
    about = get_mapping(manifest, "involvedObject") or get_mapping(manifest, "regarding")
    at = (
        get_time(manifest, "lastTimestamp")
        or get_time(get_mapping(manifest, "series"), "lastObservedTime")
        or get_time(manifest, "eventTime")
        or get_time(get_mapping(manifest, "metadata"), "creationTimestamp")
    )
    return Event(
        reason=get_text(manifest, "reason"),
        action=get_interned(manifest, "action"),
        message=get_bounded_text(manifest, "message") or get_bounded_text(manifest, "note"),
        kind=get_text(about, "kind"),
        name=get_text(about, "name"),
        warning=get_text(manifest, "type") == "Warning",
        at=at,
        repeated=bool(get_mapping(manifest, "series")),
    )

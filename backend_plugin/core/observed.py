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
    entries,
    moment,
    number,
    section,
    shared,
    text,
    texts,
    word,
    words,
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


class Group(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    groups: tuple[Group, ...] = ()
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
    def end(self) -> Condition | None:
        """The condition that reports its end; None before."""
        return next((each for each in self.conditions if each.true and each.type in _ENDS), None)

    @property
    def replicas(self) -> int:
        """The number of replicas in its spec."""
        return sum(group.replicas for group in self.groups)


class Termination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    ended: Termination | None = None
    last: Termination | None = None
    """The end of its previous run, if there was one."""
    restarts: int = 0

    @property
    def ever_started(self) -> bool:
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
    def placed(self) -> bool:
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
        pods=tuple(read_pod(each) for each in entries(said, "pods")),
        events=tuple(read_event(each) for each in entries(said, "events")),
        pod_groups=tuple(read_pod_group(each) for each in entries(said, "pod_groups")),
        error_files=tuple(read_error_file(each) for each in entries(said, "error_files")),
        outputs=outputs if isinstance(outputs, bool) else None,
    )


def read_job(manifest: Manifest) -> Job:
    """Read a PyTorchJob as the API server returns it."""
    metadata, spec = section(manifest, "metadata"), section(manifest, "spec")
    status, policy, elastic = (
        section(manifest, "status"),
        section(spec, "runPolicy"),
        section(spec, "elasticPolicy"),
    )
    deadline = number(policy, "activeDeadlineSeconds")
    return Job(
        name=word(metadata, "name"),
        namespace=word(metadata, "namespace"),
        uid=word(metadata, "uid"),
        created=moment(metadata, "creationTimestamp"),
        generation=number(metadata, "generation"),
        deleting=bool(metadata.get("deletionTimestamp")),
        groups=_groups(section(spec, "pytorchReplicaSpecs")),
        elastic=bool(elastic),
        scales=number(elastic, "minReplicas") != number(elastic, "maxReplicas"),
        nproc_per_node=number(spec, "nprocPerNode") or number(elastic, "nProcPerNode"),
        clean_pod_policy=word(policy, "cleanPodPolicy"),
        active_deadline=None if deadline is None or deadline < 0 else timedelta(seconds=deadline),
        conditions=read_conditions(status),
        started=moment(status, "startTime"),
        completed=moment(status, "completionTime"),
        expires=number(policy, "ttlSecondsAfterFinished") is not None,
        owned=bool(entries(metadata, "ownerReferences")),
        annotations=texts(metadata, "annotations"),
    )


def _groups(specs: Manifest) -> tuple[Group, ...]:
    said = {role.lower(): section(specs, role) for role in specs}
    return tuple(
        Group(
            role=role,
            replicas=_replicas(said[role]),
            restarts=text(said[role], "restartPolicy") in ("Always", "ExitCode", "OnFailure"),
        )
        for role in ("master", "worker")
        if role in said
    )


# A limit on the work per job, because some results have an entry for each replica.
_MOST_REPLICAS: Final = 100_000


def _replicas(spec: Manifest) -> int:
    said = number(spec, "replicas")
    return 1 if said is None else max(0, min(said, _MOST_REPLICAS))


def read_pod(manifest: Manifest) -> Pod:
    """Read a pod as the API server returns it."""
    metadata, spec, status = (section(manifest, key) for key in ("metadata", "spec", "status"))
    labels = section(metadata, "labels")
    name = word(metadata, "name")
    by_type = {condition.type: condition for condition in read_conditions(status)}
    disrupted = by_type.get("DisruptionTarget")
    return Pod(
        name=name,
        uid=text(metadata, "uid"),
        job_name=word(labels, JOB_NAME) or word(labels, PLACE_OF),
        owners=tuple(word(each, "uid") for each in entries(metadata, "ownerReferences")),
        role=shared(text(labels, _LABEL + "replica-type").lower()),
        index=max(0, number(labels, _LABEL + "replica-index") or 0),
        place=word(labels, PLACE),
        created=moment(metadata, "creationTimestamp"),
        deleted=_ordered(metadata),
        node=word(spec, "nodeName"),
        hostname=word(spec, "hostname") or name,
        phase=word(status, "phase"),
        reason=word(status, "reason"),
        message=words(status, "message"),
        started=moment(status, "startTime"),
        scheduled=by_type.get("PodScheduled"),
        # The condition stays with the status False after a drain that was cancelled.
        disrupted=disrupted if disrupted is not None and disrupted.true else None,
        ready=by_type.get("Ready"),
        containers=tuple(_container(each) for each in entries(status, "containerStatuses")),
        init_containers=tuple(
            _container(each, init=True) for each in entries(status, "initContainerStatuses")
        ),
    )


def _ordered(metadata: Manifest) -> datetime | None:
    # The deletionTimestamp of a pod is the end of its grace period.
    at = moment(metadata, "deletionTimestamp")
    grace = timedelta(seconds=max(0, number(metadata, "deletionGracePeriodSeconds") or 0))
    return at - grace if at is not None and at - _EPOCH > grace else at


def _container(said: Manifest, *, init: bool = False) -> Container:
    state = section(said, "state")
    running, waiting = section(state, "running"), section(state, "waiting")
    return Container(
        name=word(said, "name"),
        image=word(said, "image"),
        id=text(said, "containerID"),
        init=init,
        waiting=word(waiting, "reason"),
        waiting_message=words(waiting, "message"),
        running_since=moment(running, "startedAt"),
        ended=_termination(state),
        last=_termination(section(said, "lastState")),
        restarts=max(0, number(said, "restartCount") or 0),
    )


def _termination(state: Manifest) -> Termination | None:
    said = state.get("terminated")
    if not isinstance(said, Mapping):
        return None
    return Termination(
        exit_code=number(said, "exitCode"),
        reason=word(said, "reason"),
        message=words(said, "message"),
        started=moment(said, "startedAt"),
        finished=moment(said, "finishedAt"),
    )


def read_event(manifest: Manifest) -> Event:
    """Read an event of core/v1 or of events.k8s.io/v1."""
    about = section(manifest, "involvedObject") or section(manifest, "regarding")
    at = (
        moment(manifest, "lastTimestamp")
        or moment(section(manifest, "series"), "lastObservedTime")
        or moment(manifest, "eventTime")
        or moment(section(manifest, "metadata"), "creationTimestamp")
    )
    return Event(
        reason=text(manifest, "reason"),
        action=word(manifest, "action"),
        message=words(manifest, "message") or words(manifest, "note"),
        kind=text(about, "kind"),
        name=text(about, "name"),
        warning=text(manifest, "type") == "Warning",
        at=at,
        repeated=bool(section(manifest, "series")),
    )

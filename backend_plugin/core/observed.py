"""The few fields that we read of what a cluster holds, as records.

Lives here: one record a kind, and its `read` from the object's JSON. Reading never fails: whoever can
edit an object of the cluster must not be able to stop us from judging it. Does not: what it means.
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
"""The operator's label of replicas: the name of their job."""
_ENDS: Final = ("Succeeded", "Failed")
PLACE_OF: Final = "kfpytorch.flyte.org/place-of"
"""A label of pods that hold places until the replicas of a job come: the name of the job."""
PLACE: Final = "kfpytorch.flyte.org/place"
"""Another one: the role, in lower case."""


class Group(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The replicas that a job asks for in one role."""

    role: str
    """``master`` or ``worker``."""
    replicas: int
    restarts: bool = False
    """A replica that fails is started anew, as its author said."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A PyTorchJob."""

    name: str
    namespace: str = ""
    uid: str = ""
    created: datetime | None = None
    deleting: bool = False
    groups: tuple[Group, ...] = ()
    """The master first."""
    elastic: bool = False
    scales: bool = False
    """It may run with fewer replicas than it asks for."""
    nproc_per_node: int | None = None
    clean_pod_policy: str = ""
    active_deadline: timedelta | None = None
    conditions: tuple[Condition, ...] = ()
    started: datetime | None = None
    """When all pods had been made; not when they ran."""
    completed: datetime | None = None
    expires: bool = False
    """It is removed some time after its end."""
    owned: bool = False
    """It goes with another object."""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def end(self) -> Condition | None:
        """How it has ended, if it has."""
        return next((each for each in self.conditions if each.true and each.type in _ENDS), None)

    @property
    def replicas(self) -> int:
        """How many pods it asks for."""
        return sum(group.replicas for group in self.groups)


class Termination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How one run of a container ended."""

    exit_code: int | None
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    finished: datetime | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One container of a pod."""

    name: str
    image: str = ""
    id: str = ""
    init: bool = False
    waiting: str = ""
    """The reason for which it waits; empty when it does not."""
    waiting_message: str = ""
    running_since: datetime | None = None
    ended: Termination | None = None
    last: Termination | None = None
    """How its previous run ended, if there was one."""
    restarts: int = 0

    @property
    def ever_started(self) -> bool:
        """Whether it runs or has run."""
        return bool(self.running_since or self.ended or self.last or self.restarts)


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One replica, or the placeholder of a gang scheduler."""

    name: str
    uid: str = ""
    job_name: str = ""
    """By its label, or by ours where it holds a place for a replica; empty for any other pod."""
    owners: tuple[str, ...] = ()
    role: str = ""
    index: int = 0
    place: str = ""
    """The role that it holds a place for, where it is no replica itself."""
    created: datetime | None = None
    deleted: datetime | None = None
    """When its deletion was ordered."""
    node: str = ""
    hostname: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    scheduled: Condition | None = None
    disrupted: Condition | None = None
    """`DisruptionTarget`, while it is true: who takes it away."""
    ready: Condition | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

    @property
    def replica(self) -> str:
        """Its name as the operator counts: ``worker-0``."""
        return f"{self.role}-{self.index}" if self.role else self.name

    @property
    def primary(self) -> Container | None:
        """The container that trains."""
        for container in self.containers:
            if container.name == TRAINER:
                return container
        return self.containers[0] if self.containers else None

    @property
    def placed(self) -> bool:
        """Whether a node has been found for it."""
        return bool(self.node) or (self.scheduled is not None and self.scheduled.true)


def is_replica(pod: Pod, job: Job) -> bool:
    """True if the pod is a replica of the job: the job owns it.

    Labels are no proof: whoever may edit a pod sets them. A job without a uid comes from a file.
    """
    return not pod.place and pod.job_name in ("", job.name) and (not job.uid or job.uid in pod.owners)


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What somebody in the cluster said about an object; a hint, for events are dropped and expire."""

    reason: str
    action: str = ""
    """What its author did, or tried; some say there what others call the reason."""
    message: str = ""
    kind: str = ""
    name: str = ""
    warning: bool = False
    at: datetime | None = None


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that is known of one job at one moment."""

    job: Job | None
    """None when the cluster has none (any more)."""
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    error_files: tuple[ErrorFile, ...] = ()
    outputs: bool | None = None
    """Whether ``outputs.pb`` is there; None when nobody has looked."""
    looking: bool = False
    """Whether somebody is about to know of error files and outputs."""


def read_observed(said: Manifest) -> Observed:
    """Everything of a job: keys ``job, pods, events, pod_groups, error_files, outputs``."""
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
    """A PyTorchJob as the API server returned it."""
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


# A count beyond any cluster is a mistake, and each replica costs us a line.
_MOST_REPLICAS: Final = 100_000


def _replicas(spec: Manifest) -> int:
    said = number(spec, "replicas")
    return 1 if said is None else max(0, min(said, _MOST_REPLICAS))


def read_pod(manifest: Manifest) -> Pod:
    """A pod as the API server returned it."""
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
        # A drain that came to nothing leaves it behind as False.
        disrupted=disrupted if disrupted is not None and disrupted.true else None,
        ready=by_type.get("Ready"),
        containers=tuple(_container(each) for each in entries(status, "containerStatuses")),
        init_containers=tuple(
            _container(each, init=True) for each in entries(status, "initContainerStatuses")
        ),
    )


def _ordered(metadata: Manifest) -> datetime | None:
    # What stands there is the end of the grace that a pod is given.
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
    """An event of core/v1 or of events.k8s.io/v1."""
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
    )

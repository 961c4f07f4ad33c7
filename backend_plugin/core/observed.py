"""Records of the observed state of a job. `object_readers` and the dialects create them."""

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from backend_plugin.core.conditions import Condition as Condition
from backend_plugin.core.conditions import PodGroup as PodGroup
from backend_plugin.core.conditions import read_conditions as read_conditions
from backend_plugin.core.conditions import read_pod_group as read_pod_group
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.job_conditions import ENDS


class JobLimit(enum.Enum):
    """A limit at which an operator ends a job: a deadline, or a number of retries."""

    DEADLINE = "deadline"
    BACKOFF = "backoff-limit"


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The replicas of one role in the spec of a job."""

    role: str
    """``master``, ``worker`` or ``node``."""
    replicas: int
    restarts: bool = False
    """True if the restart policy restarts a failed replica."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The observed spec and status of a job. Its dialect is its kind, such as PyTorchJob."""

    name: str
    dialect: str = ""
    """The kind of the job, such as TrainJob; PyTorchJob if empty."""
    namespace: str = ""
    uid: str = ""
    created: datetime | None = None
    generation: int | None = None
    """The `metadata.generation`, which counts the versions of the job's spec."""
    deleting: bool = False
    groups: tuple[ReplicaSpec, ...] = ()
    """The replicas by role; the role master comes first."""
    initializers: tuple[str, ...] = ()
    """The roles of the pods that load data before the replicas are created."""
    elastic: bool = False
    scales: bool = False
    """True if the job can run with fewer replicas than its spec has."""
    launcher: bool = False
    """True if the first node runs mpirun, and the pod names of the other nodes start at index 0."""
    nproc_per_node: int | None = None
    clean_pod_policy: str = ""
    active_deadline: timedelta | None = None
    ending: bool = False
    """True if the job's spec already contains the change with which the server ends a job."""
    unfinished: bool = False
    """True if the end of the job is derived from its pods, although its operator would continue the job."""
    ttl: timedelta | None = None
    """The time from the job's end until this server (not the operator) deletes the job; None for never."""
    owns_pods: bool = True
    """True if the job is the owner of its pods; False if another object is, such as a batch/v1 Job."""
    patch_managers: tuple[str, ...] | None = None
    """The `manager` of each entry in a TrainJob's ``spec.runtimePatches``; None for other kinds of job."""
    lost_patch: bool = False
    """True if a TrainJob's ``spec.runtimePatches`` lacks the entry with which this connector created it."""
    conditions: tuple[Condition, ...] = ()
    started: datetime | None = None
    """The time at which the operator had created all pods; the pods may not run yet."""
    completed: datetime | None = None
    expires: bool = False
    """True if the job has a time to live after its end."""
    owned: bool = False
    """True if the job has an owner reference."""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def end_condition(self) -> Condition | None:
        """The condition that reports the end of the job; None before the end."""
        return next((each for each in self.conditions if each.true and each.type in ENDS), None)

    @property
    def replicas(self) -> int:
        """The number of replicas in the job's spec."""
        return sum([group.replicas for group in self.groups])


def get_end_time(job: Job | None, condition: Condition | None) -> datetime | None:
    """Return the time at which a job ended, from `job` or else from `condition`, which reports its end."""
    since = None if condition is None else condition.since
    return since if job is None else job.completed or since


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
    """The reason of the waiting state; empty if the container does not wait."""
    waiting_message: str = ""
    running_since: datetime | None = None
    ended: ContainerTermination | None = None
    last: ContainerTermination | None = None
    """The end of the container's previous run; None if there was none."""
    restarts: int = 0

    @property
    def has_started(self) -> bool:
        """True if the container runs or has run."""
        return bool(self.running_since or self.ended or self.last or self.restarts)

    @property
    def starts(self) -> list[datetime | None]:
        """The start times of the container's present and ended runs, as far as its status contains them."""
        return [self.running_since, *(each.started for each in (self.ended, self.last) if each is not None)]


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod of a replica, or a placeholder pod that reserves capacity for a replica of a gang."""

    name: str
    uid: str = ""
    job_name: str = ""
    """The job's name from the label of a replica or placeholder pod; empty for any other pod."""
    owners: tuple[str, ...] = ()
    role: str = ""
    index: int = 0
    attempt: int = 0
    """The number of restarts of the whole job before this pod was created."""
    trainer: str = ""
    """The name of the trainer container; the first container is the trainer if empty."""
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
    """The condition `DisruptionTarget` if its status is true."""
    ready: Condition | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

    @property
    def replica(self) -> str:
        """The name of the pod's replica, such as ``worker-0``; the name of the pod if the pod has no role."""
        return f"{self.role}-{self.index}" if self.role else self.name

    @property
    def primary(self) -> Container | None:
        """The trainer container; the first one if no container has its name."""
        for container in self.containers:
            if container.name == self.trainer:
                return container
        return self.containers[0] if self.containers else None

    @property
    def termination(self) -> ContainerTermination | None:
        """The termination of the trainer container; None if the container is missing or has not ended."""
        container = self.primary
        return None if container is None else container.ended

    @property
    def run_start(self) -> datetime | None:
        """The start of the trainer container's present run, or of its last one; None if unknown."""
        container = self.primary
        if container is None:
            return None
        return container.ended.started if container.ended else container.running_since

    @property
    def is_bound(self) -> bool:
        """True if the pod is bound to a Kubernetes node."""
        return bool(self.node) or (self.scheduled is not None and self.scheduled.true)


def is_replica(pod: Pod, job: Job) -> bool:
    """True if the job owns the pod, and the pod is not a placeholder that reserves capacity for a replica.

    A job without a uid comes from a file, so the owners of its pods are not checked. They are not checked
    either if another object owns the pods for the job: the pods are labelled with the job's unique name.
    """
    if pod.place or pod.job_name not in ("", job.name):
        return False
    return job.uid in pod.owners or not (job.uid and job.owns_pods)


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event about an object. An event is only a hint, because events may be dropped and expire."""

    reason: str
    action: str = ""
    """The action of the reporting controller; some controllers put the reason here."""
    message: str = ""
    kind: str = ""
    name: str = ""
    warning: bool = False
    at: datetime | None = None
    """The time of the last report."""
    message_at: datetime | None = None
    """The time of the report with this message. A repeated event keeps the message of its first report."""


def find_last_event(events: Iterable[Event]) -> Event | None:
    """Return the latest event; one without a time counts as the earliest."""
    return max(events, key=lambda event: (event.at is not None, event.at, event.message), default=None)


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The observed state of one job at one moment."""

    job: Job | None
    """The job; None if it does not exist (any more)."""
    pods: tuple[Pod, ...] = ()
    initializers: tuple[Pod, ...] = ()
    """The current pods that load data before the replicas are created.

    `pods` contains one of them only if the job has ended and the pod has not succeeded.
    """
    events: tuple[Event, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    error_files: tuple[ErrorFile, ...] = ()
    outputs: bool | None = None
    """True if ``outputs.pb`` exists; None if not checked."""
    reading_outputs: bool = False
    """True while the error files and outputs are being read."""

    @property
    def has_launcher(self) -> bool:
        """True if the first node of the job runs mpirun."""
        return self.job is not None and self.job.launcher

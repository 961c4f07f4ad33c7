"""The training job of a task, the attempt that it belongs to, and the reference that Flyte stores."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from backend_plugin.core.train_job_options import DataSource, TrainJobOptions
from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """The object that owns the job, so that its deletion deletes the job."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt of a Flyte node in an execution, with its task and its output prefix."""

    output_prefix: str
    """The URL below which the attempt writes. It is unique per attempt; the job's name contains its hash."""
    project: str
    domain: str
    execution: str
    node_id: str
    attempt: int
    """The number of the attempt, starting at 0."""
    task_project: str
    task_domain: str
    task_name: str
    task_version: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    execution_identity: str = ""
    owner: OwnerReference | None = None
    """The FlyteWorkflow of the execution; None if it could not be read."""

    preemptible: bool = False
    """The field `interruptible` of Flyte's task metadata; FlytePropeller does not set it yet."""

    @property
    def is_interruptible(self) -> bool:
        """True if the cluster may preempt this attempt, according to `preemptible` or a label of Flyte."""
        return self.preemptible or self.labels.get("interruptible") == "true"

    @property
    def flyte_node(self) -> tuple[str, ...]:
        """The identity of the Flyte node of the attempt, the same for all its attempts.

        The identity contains the directory of the outputs, because nodes of sub-workflows may share a node
        id. The directory alone is not sufficient: a caller may send the directory of another execution.
        """
        directory = self.output_prefix.rstrip("/").rpartition("/")[0]
        return self.namespace, self.project, self.domain, self.execution, self.node_id, directory


class ReplicaRole(enum.Enum):
    """A replica role; the value is the operator's name for the role."""

    MASTER = "Master"
    WORKER = "Worker"
    NODE = "Node"
    """The role of all replicas if the kind of job has no master; a TrainJob has none."""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The resource requests and limits of one replica, by resource name, with unparsed quantities."""

    requests: Mapping[str, str] = msgspec.field(default_factory=dict)
    limits: Mapping[str, str] = msgspec.field(default_factory=dict)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Node constraints and the pod template of one role, in addition to the task's pod."""

    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Labels that are merged into the task's node selector and override it."""
    tolerations: tuple[Manifest, ...] = ()
    """Tolerations that are added to those of the task."""
    pod_template: Manifest | None = None
    """A pod template with defaults for the role; the values of the task's pod take precedence."""
    priority_class_name: str | None = None
    """The priority class that replaces the one of the task; None keeps the task's."""


class ReplicaGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of one role, which all have the same settings."""

    role: ReplicaRole
    replicas: int
    restart_policy: str
    """``Never``, ``OnFailure`` or ``Always``."""
    processes: int = 1
    """The number of processes that each replica starts; each process is a rank."""
    image: str | None = None
    """The image that replaces the one of the task; None keeps the task's."""
    resources: Resources | None = None
    """The resources that replace all resources of the task; None keeps the task's."""
    placement: Placement = msgspec.field(default_factory=Placement)
    num_retries: int | None = None
    """The number of restarts of each replica that the author permits; None if the author set none."""


class ElasticPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The rendezvous settings for torch's elastic agents; each replica runs one agent."""

    min_replicas: int
    max_replicas: int
    rdzv_backend: str
    max_restarts: int


class JobRunPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for the run time and the retries of a job, and the cleanup after its end."""

    clean_pod_policy: str = "None"
    """``None``, ``Running`` or ``All``."""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None


class GangOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The author's gang options; None leaves a value to the platform's settings."""

    scheduler: str | None = None
    queue: str | None = None
    min_member: int | None = None
    priority_class_name: str | None = None
    queue_timeout_seconds: int | None = None
    pending_timeout_seconds: int | None = None


_NO_GANG_OPTIONS: Final = GangOptions()
_NO_TRAIN_OPTIONS: Final = TrainJobOptions()
TRAIN_JOB: Final = "TrainJob"
"""The kind of job that `TrainJobOptions` selects."""


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A distributed training job, independent of the kind of Kubernetes object (dialect) that it becomes."""

    run: Attempt
    groups: tuple[ReplicaGroup, ...]
    """At least one group: the master and then the workers.

    An elastic job has only workers. A TrainJob has one group of nodes.
    """
    nproc_per_node: int | None = None
    """The number of processes that each replica's agent starts; None if the replica determines it."""
    elastic: ElasticPolicy | None = None
    run_policy: JobRunPolicy = msgspec.field(default_factory=JobRunPolicy)
    gang: GangOptions = _NO_GANG_OPTIONS
    train_job: TrainJobOptions | None = None

    @property
    def dialect(self) -> str:
        """The kind of job that the author's options select: ``TrainJob``, or empty if they select none."""
        return TRAIN_JOB if self.train_job is not None else ""

    @property
    def train_options(self) -> TrainJobOptions:
        """The author's options for a TrainJob; the defaults if there are none."""
        return self.train_job or _NO_TRAIN_OPTIONS

    @property
    def sources(self) -> Mapping[str, DataSource]:
        """The data set and the model that initializers load, under the keys ``dataset`` and ``model``."""
        return self.train_options.sources

    @property
    def framework(self) -> str:
        """The framework that the processes of the job use, such as torch or MPI."""
        return self.train_options.framework

    @property
    def deadlines(self) -> "Deadlines":
        """The author's time limits, which the server enforces."""
        return Deadlines(
            active_seconds=self.run_policy.active_deadline_seconds,
            queue_seconds=self.gang.queue_timeout_seconds,
            pending_seconds=self.gang.pending_timeout_seconds,
        )


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """The time limits that the server enforces, in seconds; None if the author set no limit."""

    active_seconds: int | None = None
    queue_seconds: int | None = None
    pending_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """The reference to a job that Flyte stores between two calls of the connector."""

    dialect: str
    namespace: str
    name: str
    output_prefix: str
    uid: str | None = None
    refusal: str | None = None
    """The reason why no job was created; None if a job was created."""

"""The vocabulary that crosses stages: what a task asks for, who asks, what we ask of the cluster."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.values import Manifest

TRAINER: Final = "pytorch"
"""The container that trains, by the only name by which the operator finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """The object that owns the job: when it is deleted, the job goes, too."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt of one node of one execution: who asks, and where its results go."""

    output_prefix: str
    """Unique for an attempt; names are derived from it."""
    project: str
    domain: str
    execution: str
    node_id: str
    attempt: int
    """0 for the first."""
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
    """Flyte's workflow object, where it could be read."""

    preemptible: bool = False
    """Flyte's own field for it, which propeller leaves empty so far."""

    @property
    def interruptible(self) -> bool:
        """Whether this attempt may be preempted; propeller says so in a label."""
        return self.preemptible or self.labels.get("interruptible") == "true"


class Role(enum.Enum):
    """A kind of replica, by the operator's name for it."""

    MASTER = "Master"
    WORKER = "Worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one replica asks for, under Kubernetes' resource names; quantities as they were written."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the replicas of one role run, beyond what the task's own pod says."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Beside the task's; wins over it."""
    tolerations: tuple[Manifest, ...] = ()
    """Beside the task's."""
    pod_template: Manifest | None = None
    """A pod template under the task's pod: what the task says wins."""
    priority_class_name: str | None = None
    """In place of the task's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """Replicas of one role, all alike."""

    role: Role
    replicas: int
    restart_policy: str
    """``Never``, ``OnFailure`` or ``Always``."""
    processes: int = 1
    """How many each replica starts; every one of them is a rank."""
    image: str | None = None
    """In place of the task's."""
    resources: Resources | None = None
    """In place of the task's, as a whole; None when nothing was said."""
    placement: Placement = field(default_factory=Placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPolicy:
    """How torch's elastic agents, one in each replica, find each other."""

    min_replicas: int
    max_replicas: int
    rdzv_backend: str
    max_restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """What the operator does with the job as a whole."""

    clean_pod_policy: str = "None"
    """``None``, ``Running`` or ``All``."""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What the author says about starting all replicas together; None where the platform decides."""

    scheduler: str | None = None
    queue: str | None = None
    min_member: int | None = None
    priority_class_name: str | None = None
    queue_timeout_seconds: int | None = None
    pending_timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJobOptions:
    """What only a TrainJob can say."""

    runtime: str | None = None
    runtime_kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A distributed training, in the words of neither dialect."""

    run: Run
    groups: tuple[ReplicaGroup, ...]
    """The master first; only workers when elastic. Never empty, never with a group of none."""
    nproc_per_node: int | None = None
    """Processes that the agent of each replica starts; None where the replica itself decides."""
    elastic: ElasticPolicy | None = None
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    gang: Gang | None = None
    train_job: TrainJobOptions | None = None

    @property
    def deadlines(self) -> "Deadlines":
        """What its author said about time, for whoever follows the job: its operator does not see to it."""
        gang = self.gang or Gang()
        return Deadlines(
            active_seconds=self.run_policy.active_deadline_seconds,
            queue_seconds=gang.queue_timeout_seconds,
            pending_seconds=gang.pending_timeout_seconds,
        )


class Dialect(enum.Enum):
    """A kind of object that a training can be written down as, by its name in the cluster."""

    PYTORCHJOB = "PyTorchJob"
    TRAINJOB = "TrainJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The timers that the operators lack, in seconds; None: none."""

    active_seconds: int | None = None
    queue_seconds: int | None = None
    pending_seconds: int | None = None
    no_status_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """What Flyte keeps for us between two calls."""

    dialect: Dialect
    namespace: str
    name: str
    output_prefix: str
    uid: str | None = None
    refusal: str | None = None
    """Why nothing was asked of the cluster; None when something was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything we would ask the cluster for."""

    manifests: tuple[Manifest, ...]
    """In the order in which we would ask."""
    warnings: tuple[str, ...] = ()
    """Sentences about what the platform reports and does not refuse."""
    reasons: tuple[str, ...] = ()
    """Why this scheduler, or none, as sentences."""

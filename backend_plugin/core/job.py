"""The vocabulary that crosses stages: what a task asks for, by whom it is asked, what we ask of the cluster."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend_plugin.core.values import Manifest


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

    @property
    def interruptible(self) -> bool:
        """Whether this attempt may be preempted; propeller says so in a label only."""
        return self.labels.get("interruptible") == "true"


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
class ReplicaGroup:
    """Replicas of one role, all alike."""

    role: Role
    replicas: int
    restart_policy: str
    """``Never``, ``OnFailure`` or ``Always``."""
    image: str | None = None
    """In place of the task's."""
    resources: Resources | None = None
    """In place of the task's, as a whole; None when nothing was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything we would ask the cluster for, in the order in which we would ask for it."""

    manifests: tuple[Manifest, ...]

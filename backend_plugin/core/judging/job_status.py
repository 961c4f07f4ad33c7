"""The status of a job, from which its Flyte phase is derived. The module `status` computes the status."""

import enum
from datetime import datetime
from typing import Final

import msgspec

from backend_plugin.core import job_conditions
from backend_plugin.core.judging.pending import JobWarning, PendingReason, PendingStage
from backend_plugin.core.judging.terminations import ReplicaTermination
from backend_plugin.core.observed import Condition, Job, Pod


class JobState(enum.Enum):
    """The state of a job, from its conditions, or from other observed objects if no condition shows it."""

    UNSEEN = "unseen"
    """The operator has not written any condition of the job."""
    CREATED = "created"
    """The operator has seen the job, but has not created all pods."""
    SUSPENDED = "suspended"
    ADMITTED = "admitted"
    """The operator has created all pods."""
    RUNNING = "running"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """The job is being deleted before its end."""
    GONE = "gone"
    """The job does not exist, for example because a client deleted it, or its time to live has ended."""

    @property
    def is_finished(self) -> bool:
        """True if the job has ended or is being deleted."""
        return self in _FINAL_STATES


_FINAL_STATES: Final = (JobState.SUCCEEDED, JobState.FAILED, JobState.DELETED, JobState.GONE)


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of a job at one moment."""

    state: JobState
    job: Job | None
    pods: tuple[Pod, ...] = ()
    """The pods of the job's replicas and of its failed initializers, sorted by role and index."""
    initializers: tuple[Pod, ...] = ()
    total: int = 0
    ready: int = 0
    condition: Condition | None = None
    """The condition of the job that corresponds to `state`."""
    has_run: bool = False
    """True if the operator has ever reported that the job runs, or if the job has ended."""
    has_been_suspended: bool = False
    admitted_once: bool = False
    """True if the job has not run, a queue has admitted it once, and no pod was replaced after that."""
    has_been_held: bool = False
    """True if a scheduler or queue has handled the job, or the API server has rejected one of its pods."""
    missing: bool = False
    """True if the operator had created all pods, and some no longer exist or are being deleted."""
    replaced: tuple[str, ...] = ()
    """The replicas whose pod is a replacement: it was created after every replica had once had a pod."""
    enough: bool = True
    """False if the job needs all replicas, none of its pods was replaced, and one of them has never run."""
    waits: tuple[PendingReason, ...] = ()
    notes: tuple[JobWarning, ...] = ()
    root_cause: ReplicaTermination | None = None
    """The termination that is the root cause of the job's end; None if unknown or the job has not ended."""
    terminated: int = 0
    """The number of replicas that failed or were stopped; 0 if the job has not ended."""
    unsettled: bool = False
    """True if the job succeeded, but a replica that wrote an error file and was restarted has not ended."""
    outputs: bool | None = None
    reading_outputs: bool = False
    """True while the error files and outputs of the job are being read."""

    @property
    def started(self) -> datetime | None:
        """The time at which the operator had created all pods; None before."""
        return None if self.job is None else self.job.started

    @property
    def scales(self) -> bool:
        """True if the job can run with fewer replicas than its spec has."""
        return self.job is not None and self.job.scales

    @property
    def first_reason(self) -> PendingReason | None:
        """The pending reason to report first; None if there is none.

        It is a reason of the lowest stage. In this stage, a problem that the cluster reports comes before a
        normal step of a pod's start.
        """
        return self.waits[0] if self.waits else None

    @property
    def unbound_reasons(self) -> list[PendingReason]:
        """The pending reasons of replicas that are not bound to a Kubernetes node."""
        return [wait for wait in self.waits if wait.stage <= PendingStage.UNPLACED]

    @property
    def run_start(self) -> datetime | None:
        """The earliest known start of a trainer container or of the condition Running; None if unknown."""
        containers = [container for pod in self.pods if (container := pod.primary) is not None]
        began = [at for container in containers for at in container.starts]
        if self.condition is not None and self.condition.type == job_conditions.RUNNING:
            began.append(self.condition.since)
        return min(filter(None, began), default=None)

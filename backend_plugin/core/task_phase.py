"""JobStatus → Flyte's phase, with its reason and message.

Lives here: which phase a state is, when patience ends, and which causes are worth a retry. Each phase is
shown once, so none is left for an earlier one: what was said is read off the objects, never remembered.
"""

import enum
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from typing_extensions import assert_never

from backend_plugin.core import status as statuses
from backend_plugin.core import verdict, waiting, wording
from backend_plugin.core.job import Deadlines
from backend_plugin.core.log_links import LogLink
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.status import JobStatus, State
from backend_plugin.core.values import JsonValue
from backend_plugin.core.waiting import Stage, Wait
from kfpytorch_common.causes import Cause


class Phase(enum.Enum):
    """`flyteidl.core.TaskExecution.Phase`, by its names, in the order in which a task passes them."""

    UNDEFINED = "UNDEFINED"
    QUEUED = "QUEUED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    RETRYABLE_FAILED = "RETRYABLE_FAILED"
    FAILED = "FAILED"

    @property
    def is_failure(self) -> bool:
        """Whether the attempt has failed, for good or not."""
        return self in (Phase.FAILED, Phase.RETRYABLE_FAILED)

    @property
    def is_terminal(self) -> bool:
        """Whether the attempt is over."""
        return self is Phase.SUCCEEDED or self.is_failure


class TaskPhase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What Flyte should believe."""

    phase: Phase
    reason: str
    """One word: ``Unschedulable``, ``OOMKilled``, ``Running``."""
    message: str
    """At most 1,000 characters; the first line says it all."""
    cause: Cause | None = None
    """None unless something is wrong."""
    retry: bool = False
    """Whether another attempt may help; only after a failure."""
    logs: tuple[LogLink, ...] = ()
    info: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)


def is_worth_a_retry(cause: Cause) -> bool:
    """Whether another attempt may end better: it may, unless somebody has to change something first."""
    match cause:
        case Cause.USER_ERROR | Cause.CONFIG:
            return False
        case (
            Cause.OOM_HOST
            | Cause.OOM_GPU
            | Cause.NCCL_TIMEOUT
            | Cause.HANG
            | Cause.PREEMPTED
            | Cause.NODE_LOST
            | Cause.IMAGE
            | Cause.UNSCHEDULABLE
            | Cause.QUOTA
            | Cause.QUEUE
            | Cause.INFRA
        ):
            return True
        case _:
            assert_never(cause)


def from_status(status: JobStatus, patience: Judging, deadlines: Deadlines, now: datetime) -> TaskPhase:
    """The phase of a job; the same for the same objects at the same time, whoever is asked."""
    if (decided := _decided(status)) is not None:
        return decided
    if status.looking and status.state.is_over:
        return _said(Phase.RUNNING, "Ending", "the job has ended; what it has left is being read")
    match status.state:
        case State.SUCCEEDED:
            return _of_success(status, patience, now)
        case State.FAILED:
            return _of_failure(status, now)
        case State.DELETED | State.GONE:
            return _of_loss(status)
        case (
            State.UNSEEN | State.CREATED | State.SUSPENDED | State.ADMITTED | State.RUNNING | State.RESTARTING
        ):
            return _out_of_patience(status, patience, deadlines, now) or _of_living(status, patience, now)
        case _:
            assert_never(status.state)


def _decided(status: JobStatus) -> TaskPhase | None:
    """What was decided earlier and stands on the job, unless the work was done meanwhile."""
    said = status.job.annotations.get(verdict.ANNOTATION) if status.job else None
    known = verdict.read(said) if said else None
    if known is None or (status.state is State.SUCCEEDED and status.death is None):
        return None
    phase = Phase.RETRYABLE_FAILED if known.retry else Phase.FAILED
    return TaskPhase(
        phase=phase,
        reason=known.reason,
        message=wording.shortened(known.message),
        cause=known.cause,
        retry=known.retry,
    )


def failed(cause: Cause, reason: str, message: str, *, recoverable: bool = False) -> TaskPhase:
    """A failure; whether it is worth a retry follows from its cause, unless the task itself said so."""
    retry = recoverable or is_worth_a_retry(cause)
    return TaskPhase(
        phase=Phase.RETRYABLE_FAILED if retry else Phase.FAILED,
        reason=reason,
        message=wording.shortened(message),
        cause=cause,
        retry=retry,
    )


def _said(phase: Phase, reason: str, message: str) -> TaskPhase:
    return TaskPhase(phase=phase, reason=reason, message=wording.shortened(message))


# ---- ends


def _of_success(status: JobStatus, patience: Judging, now: datetime) -> TaskPhase:
    ended = (status.job.completed if status.job else None) or (
        status.condition.since if status.condition else None
    )
    if status.unsettled and ended is not None and now - ended <= patience.settling_time:
        return _said(Phase.RUNNING, "Settling", "the job has succeeded; a restarted replica has yet to end")
    if status.death is None:
        return _said(Phase.SUCCEEDED, "Succeeded", f"job {wording.job(status)} succeeded")
    return _of_death(
        status, "the job counts as succeeded, but a replica wrote this error and did not recover"
    )


# The API server tells of the job before it tells of the pod that ended it.
_NEWS: Final = timedelta(seconds=5)


def _may_have_news(status: JobStatus) -> bool:
    """Whether a pod may have ended of which we have yet to hear; none that is gone or removed has news."""
    complete = len(status.pods) >= status.total and all(pod.deleted is None for pod in status.pods)
    return complete and any(pod.phase in ("Pending", "Running") for pod in status.pods)


def _of_failure(status: JobStatus, now: datetime) -> TaskPhase:
    condition = status.condition
    said = condition.message if condition is not None else ""
    death = status.death
    if "active longer than specified deadline" in said and (death is None or death.failure.stopped):
        return failed(
            Cause.USER_ERROR, "DeadlineExceeded", f"it ran for longer than its deadline allows\n{said}"
        )
    if death is not None:
        return _of_death(status, "")
    if "backoff limit" in said:
        return failed(
            Cause.INFRA,
            "BackoffLimitExceeded",
            wording.lines(
                "it failed more often than its backoff limit allows, and its pods are gone",
                said,
                wording.outputs(status),
                "with restart policy Never, or without a backoff limit, the first failure would be reported",
            ),
        )
    fresh = condition is not None and condition.since is not None and now - condition.since < _NEWS
    if fresh and _may_have_news(status):
        return _said(Phase.RUNNING, "Failing", f"the operator calls the job failed: {said}")
    return failed(
        Cause.INFRA,
        (condition.reason if condition else "") or "Failed",
        wording.lines(
            "the job failed, and the replicas that could say why are gone",
            said,
            wording.outputs(status),
            wording.remedy(Cause.INFRA),
        ),
    )


def _of_loss(status: JobStatus) -> TaskPhase:
    death = status.death
    if death is not None and not death.failure.stopped:
        return _of_death(status, f"the job {wording.LOSS[status.state]}")
    if status.outputs or _is_done(status):
        return _said(Phase.SUCCEEDED, "Succeeded", f"the work was done; the job {wording.LOSS[status.state]}")
    return failed(
        Cause.INFRA,
        "Gone" if status.state is State.GONE else "Deleted",
        wording.lines(
            f"the job {wording.DELETION[status.state]} before its end, and not by Flyte",
            wording.outputs(status),
            "look for who deleted it: a person, a clean-up of the namespace, a time to live",
        ),
    )


def _is_done(status: JobStatus) -> bool:
    """Whether the pods that it has left say so: the master's, or all workers' where there is none."""
    masters = [pod for pod in status.pods if pod.role == "master"]
    return bool(status.pods) and all(pod.phase == "Succeeded" for pod in masters or status.pods)


def _of_death(status: JobStatus, note: str) -> TaskPhase:
    death = status.death
    assert death is not None, "only called where there is one"  # noqa: S101 - for the type checker.
    retry = death.recoverable or is_worth_a_retry(death.cause)
    message = wording.death(status, death, note, retry=retry)
    return failed(death.cause, wording.word(death), message, recoverable=death.recoverable)


# ---- patience


def _out_of_patience(
    status: JobStatus, patience: Judging, deadlines: Deadlines, now: datetime
) -> TaskPhase | None:
    """The failure of a job that has waited, or run, for longer than is borne; None while there is time."""
    ended = _past_deadline(status, patience, deadlines, now) or _unseen(status, patience, deadlines, now)
    if ended is not None or _does_without(status):
        return ended
    return (
        _stuck(status, patience, now)
        or _unplaced_too_long(status, deadlines, now)
        or _queued_too_long(status, patience, deadlines, now)
    )


def _does_without(status: JobStatus) -> bool:
    """Whether it trains, and may go on without the replicas that it waits for."""
    return status.has_run and status.ready > 0 and status.job is not None and status.job.scales


def _timer(said: int | None, default: timedelta) -> timedelta:
    return default if said is None else timedelta(seconds=max(0, said))


def _past_deadline(
    status: JobStatus, patience: Judging, deadlines: Deadlines, now: datetime
) -> TaskPhase | None:
    own = status.job.active_deadline if status.job else None
    limit = own if own is not None else _timer(deadlines.active_seconds, patience.active_deadline)
    # The job's own zero means zero, ours means none; a deadline of nothing is meant by nobody.
    if not limit or not status.has_run:
        return None
    began = statuses.first_container(status)
    if began is None or now - began <= limit:
        return None
    return failed(
        Cause.USER_ERROR,
        "DeadlineExceeded",
        wording.lines(
            f"it ran for longer than its deadline of {wording.duration(limit)} allows",
            "raise the deadline, or save checkpoints and go on from them",
        ),
    )


def _unseen(status: JobStatus, patience: Judging, deadlines: Deadlines, now: datetime) -> TaskPhase | None:
    limit = _timer(deadlines.no_status_seconds, patience.no_status_timeout)
    job = status.job
    age = now - job.created if job is not None and job.created is not None else timedelta(0)
    if not limit or age <= limit or (job is not None and job.started is not None):
        return None
    for wait in status.waits:
        if wait.reason.startswith("FailedCreate") and wait.cause in (Cause.CONFIG, Cause.INFRA):
            return _given_up(wait, limit)
    # A queue or a gang scheduler may hold a job before its operator has looked at it.
    if status.state is not State.UNSEEN or status.waits or status.has_been_held:
        return None
    return failed(
        Cause.INFRA,
        "NeverSeen",
        wording.lines(
            f"no operator took up the job for {wording.duration(limit)}: is the training-operator running?",
            "look at its pod in the namespace that it is installed in, and at that pod's log",
        ),
    )


_GRACE: Final[Mapping[str, str]] = {
    "ErrImagePull": "image_pull_backoff_grace_period",
    "ImagePullBackOff": "image_pull_backoff_grace_period",
    "ErrImageNeverPull": "image_pull_backoff_grace_period",
    "ImageInspectError": "image_pull_backoff_grace_period",
    "RegistryUnavailable": "image_pull_backoff_grace_period",
    "CreateContainerError": "create_container_error_grace_period",
    "RunContainerError": "create_container_error_grace_period",
    "CreateContainerConfigError": "create_container_config_error_grace_period",
}
"""Which patience a container's reason to wait has; the others have `pending_timeout`."""


def _stuck(status: JobStatus, patience: Judging, now: datetime) -> TaskPhase | None:
    """A replica that has a node and does not start."""
    pending = patience.pending_timeout
    for wait in status.waits:
        if wait.reason == "InvalidImageName":
            return _given_up(wait, timedelta(0))
        knob = _GRACE.get(wait.reason)
        if knob is not None:
            limit: timedelta = getattr(patience, knob)
            if wait.since is not None and now - wait.since > limit:
                return _given_up(wait, limit)
        elif wait.stage is Stage.STARTING and pending and waiting.longer_than(wait, pending, now):
            return _given_up(wait, pending)
    return None


def _unplaced_too_long(status: JobStatus, deadlines: Deadlines, now: datetime) -> TaskPhase | None:
    """A replica that no queue holds back and that still finds no node."""
    limit = _timer(deadlines.pending_seconds, timedelta(0))
    if not limit or any(wait.stage is Stage.HELD for wait in status.waits):
        return None
    for wait in status.waits:
        if wait.stage is Stage.UNPLACED and waiting.longer_than(wait, limit, now):
            return _given_up(wait, limit)
    return None


def _queued_too_long(
    status: JobStatus, patience: Judging, deadlines: Deadlines, now: datetime
) -> TaskPhase | None:
    limit = _timer(deadlines.queue_seconds, patience.queue_timeout)
    if not limit or (status.state is not State.SUSPENDED and not statuses.held(status)):
        return None
    wait = statuses.worst(status)
    own = wait.since if wait is not None else status.condition.since if status.condition else None
    since = own if status.has_run else (status.job.created if status.job else None)
    if since is None or now - since <= limit:
        return None
    if wait is None:
        return failed(
            Cause.QUEUE, "Suspended", f"it has been suspended for more than {wording.duration(limit)}"
        )
    return _given_up(wait, limit)


def _given_up(wait: Wait, limit: timedelta) -> TaskPhase:
    return failed(
        wait.cause,
        wait.reason or "Pending",
        wording.lines(
            f"{wording.wait(wait)} (given up after {wording.duration(limit)})", wording.remedy(wait.cause)
        ),
    )


# ---- before the end


def _of_living(status: JobStatus, patience: Judging, now: datetime) -> TaskPhase:
    begun = status.has_run and status.enough
    phase = Phase.RUNNING if begun else _starting(status, patience, now)
    wait = statuses.worst(status)
    reason = wait.reason if wait is not None and wait.reason and phase is not Phase.RUNNING else ""
    return TaskPhase(
        phase=phase,
        reason=reason or wording.STATES[status.state],
        message=wording.shortened(wording.living(status, phase.value)),
        cause=wait.cause if wait is not None and waiting.is_trouble(wait) else None,
    )


# The cache of the jobs may be a moment ahead of that of the pods.
_CACHES: Final = timedelta(seconds=2)


def _starting(status: JobStatus, patience: Judging, now: datetime) -> Phase:
    """The phase before the first running of all; what a later one leaves behind keeps it from an earlier."""
    started = status.job.started if status.job else None
    if status.has_been_suspended or status.state is State.SUSPENDED:
        # Once admitted it may have had its nodes already.
        return Phase.WAITING_FOR_RESOURCES if started is None else Phase.INITIALIZING
    unplaced = [wait for wait in status.waits if wait.stage is Stage.UNPLACED and wait.replicas]
    if started is not None and status.replaced:
        return Phase.INITIALIZING
    if started is not None and not unplaced and not (status.missing and now - started < _CACHES):
        return Phase.INITIALIZING
    overdue = any(waiting.longer_than(wait, patience.unseen_pod_patience, now) for wait in unplaced)
    told = status.has_been_held or overdue or any(wait.reason for wait in statuses.held(status))
    return Phase.WAITING_FOR_RESOURCES if told else Phase.QUEUED

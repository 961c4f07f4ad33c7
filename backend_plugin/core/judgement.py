"""Rules that derive the verdict from a job's status. The time limits are in `patience`.

FlytePropeller publishes each phase once, so the phase must not go back. The rules keep no state of their own:
they derive past progress from the objects.
"""

from datetime import datetime, timedelta
from typing import Final

from typing_extensions import assert_never

from backend_plugin.core import admission, kept_verdict, patience, waiting, wording
from backend_plugin.core import status as statuses
from backend_plugin.core.job import Deadlines
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.status import JobStatus, State
from backend_plugin.core.task_phase import Phase, TaskPhase, failed, is_worth_a_retry
from backend_plugin.core.waits import Note, Stage
from kfpytorch_common.causes import Cause


def from_status(status: JobStatus, judging: Judging, deadlines: Deadlines, now: datetime) -> TaskPhase:
    """Return the verdict on a job, which depends only on the arguments."""
    if (decided := _decided(status)) is not None:
        return decided
    if status.looking and status.state.is_over:
        return _said(Phase.RUNNING, "Ending", "the job has ended; its remaining state is being read")
    match status.state:
        case State.SUCCEEDED:
            return _of_success(status, judging, now)
        case State.FAILED:
            return _of_failure(status, now)
        case State.DELETED | State.GONE:
            return _of_loss(status)
        case (
            State.UNSEEN | State.CREATED | State.SUSPENDED | State.ADMITTED | State.RUNNING | State.RESTARTING
        ):
            return patience.ended(status, judging, deadlines, now) or _of_living(status, judging, now)
        case _:
            assert_never(status.state)


def _decided(status: JobStatus) -> TaskPhase | None:
    """Return the failure stored on the job; None if there is none or the job succeeded in the meantime."""
    said = status.job.annotations.get(kept_verdict.ANNOTATION) if status.job else None
    known = kept_verdict.read(said) if said else None
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


def _said(phase: Phase, reason: str, message: str) -> TaskPhase:
    return TaskPhase(phase=phase, reason=reason, message=wording.shortened(message))


# ---- ends


def _of_success(status: JobStatus, judging: Judging, now: datetime) -> TaskPhase:
    ended = (status.job.completed if status.job else None) or (
        status.condition.since if status.condition else None
    )
    if status.unsettled and ended is not None and now - ended <= judging.settling_time:
        return _said(Phase.RUNNING, "Settling", "the job has succeeded; a restarted replica has not ended")
    if status.death is None:
        return _said(Phase.SUCCEEDED, "Succeeded", f"job {wording.job(status)} succeeded")
    return _of_death(status, "the job has succeeded, but a replica wrote this error and did not recover")


# The longest delay between the watch event of a failed job and that of the pod that caused the failure.
_NEWS: Final = timedelta(seconds=5)


def _may_have_news(status: JobStatus) -> bool:
    """True if the watch may not have delivered the termination of a pod.

    False if a pod is gone or being deleted, because no further state is expected.
    """
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
                "to see the first failure, use restart policy Never or no backoff limit",
            ),
        )
    fresh = condition is not None and condition.since is not None and now - condition.since < _NEWS
    if fresh and _may_have_news(status):
        return _said(Phase.RUNNING, "Failing", f"the operator reports that the job failed: {said}")
    return failed(
        Cause.INFRA,
        (condition.reason if condition else "") or "Failed",
        wording.lines(
            "the job failed, and the pods that could show the reason no longer exist",
            said,
            wording.missing(status),
            wording.outputs(status),
            wording.remedy(Cause.INFRA),
        ),
    )


def _of_loss(status: JobStatus) -> TaskPhase:
    death = status.death
    if death is not None and not death.failure.stopped:
        return _of_death(status, f"the job {wording.LOSS[status.state]}")
    if status.outputs or _is_done(status):
        return _said(
            Phase.SUCCEEDED, "Succeeded", f"the work was complete; the job {wording.LOSS[status.state]}"
        )
    return failed(
        Cause.INFRA,
        "Gone" if status.state is State.GONE else "Deleted",
        wording.lines(
            f"the job {wording.DELETION[status.state]} before it ended, and not by Flyte",
            wording.outputs(status),
            "find out what deleted it: a user, a cleanup of the namespace or a time to live",
        ),
    )


def _is_done(status: JobStatus) -> bool:
    """True if the remaining pods succeeded: the master, or all workers if there is no master."""
    masters = [pod for pod in status.pods if pod.role == "master"]
    return bool(status.pods) and all(pod.phase == "Succeeded" for pod in masters or status.pods)


def _of_death(status: JobStatus, note: str) -> TaskPhase:
    death = status.death
    assert death is not None, "only called where there is one"  # noqa: S101 - for the type checker.
    retry = death.recoverable or is_worth_a_retry(death.cause)
    message = wording.death(status, death, note, retry=retry)
    return failed(death.cause, wording.word(death), message, recoverable=death.recoverable)


# ---- before the end


def _of_living(status: JobStatus, judging: Judging, now: datetime) -> TaskPhase:
    begun = status.has_run and status.enough
    phase = Phase.RUNNING if begun else _starting(status, judging, now)
    wait = statuses.worst(status)
    lasting = notes(status, judging, now)
    reason = wait.reason if wait is not None and wait.reason and phase is not Phase.RUNNING else ""
    return TaskPhase(
        phase=phase,
        reason=reason or wording.STATES[status.state],
        message=wording.shortened(wording.living(status, phase.value, lasting)),
        cause=wait.cause if wait is not None and waiting.is_trouble(wait) else None,
    )


def notes(status: JobStatus, judging: Judging, now: datetime) -> list[Note]:
    """Return the warnings of a running job that have lasted long enough to be reported."""
    return [note for note in status.notes if _has_lasted(note, judging, now)]


def _has_lasted(note: Note, judging: Judging, now: datetime) -> bool:
    return note.since is None or now - note.since > judging.unseen_pod_patience


# The cache of jobs may be ahead of the cache of pods.
_CACHES: Final = timedelta(seconds=2)


def _starting(status: JobStatus, judging: Judging, now: datetime) -> Phase:
    """Return the phase before all replicas have first run, without going back to an earlier phase."""
    started = status.job.started if status.job else None
    unplaced = [wait for wait in status.waits if wait.stage <= Stage.UNPLACED and wait.replicas]
    if status.has_been_suspended or status.state is State.SUSPENDED:
        if started is None:
            return Phase.WAITING_FOR_RESOURCES
        # After a second admission, the pods of the first may have been bound to nodes.
        waits = bool(unplaced) or (status.missing and now - started < admission.CREATION)
        return Phase.WAITING_FOR_RESOURCES if status.admitted_once and waits else Phase.INITIALIZING
    if started is not None and status.replaced:
        return Phase.INITIALIZING
    if started is not None and not unplaced and not (status.missing and now - started < _CACHES):
        return Phase.INITIALIZING
    overdue = any(waiting.longer_than(wait, judging.unseen_pod_patience, now) for wait in unplaced)
    overdue |= bool(notes(status, judging, now))
    told = status.has_been_held or overdue or any(wait.reason for wait in statuses.held(status))
    return Phase.WAITING_FOR_RESOURCES if told else Phase.QUEUED

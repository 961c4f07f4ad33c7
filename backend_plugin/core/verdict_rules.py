"""Rules that derive the verdict from a job's status. The time limits are in `timeouts`.

FlytePropeller publishes each phase once, so the phase must not go back. The rules keep no state of their own:
they derive past progress from the objects.
"""

from datetime import datetime, timedelta
from typing import Final

from typing_extensions import assert_never

from backend_plugin.core import (
    admission,
    initializers,
    messages,
    pending_reasons,
    timeouts,
    verdict_annotation,
)
from backend_plugin.core import job_status as statuses
from backend_plugin.core.job import Deadlines
from backend_plugin.core.job_status import JobState, JobStatus
from backend_plugin.core.pending import JobWarning, PendingStage
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.core.verdict import Phase, Verdict, build_failure, is_retryable
from kfpytorch_common.causes import Cause


def judge_status(status: JobStatus, judging: JudgingSettings, deadlines: Deadlines, now: datetime) -> Verdict:
    """Return the verdict on a job, which depends only on the arguments."""
    if (decided := _find_recorded_verdict(status)) is not None:
        return decided
    if status.looking and status.state.is_finished:
        return _build_verdict(
            Phase.RUNNING, "CollectingOutputs", "the job has ended; its remaining state is being read"
        )
    match status.state:
        case (
            JobState.RUNNING
            | JobState.RESTARTING
            | JobState.UNSEEN
            | JobState.CREATED
            | JobState.SUSPENDED
            | JobState.ADMITTED
        ):
            return timeouts.check_timeouts(status, judging, deadlines, now) or _judge_active_job(
                status, judging, now
            )
        case JobState.SUCCEEDED:
            return _judge_success(status, judging, now)
        case JobState.FAILED:
            return _judge_failure(status, now)
        case JobState.DELETED | JobState.GONE:
            return _judge_missing_job(status)
        case _:
            assert_never(status.state)


def _find_recorded_verdict(status: JobStatus) -> Verdict | None:
    """Return the failure stored on the job; None if there is none or the job succeeded in the meantime."""
    annotation = status.job.annotations.get(verdict_annotation.ANNOTATION) if status.job else None
    known = verdict_annotation.read(annotation) if annotation else None
    if known is None or (status.state is JobState.SUCCEEDED and status.death is None):
        return None
    phase = Phase.RETRYABLE_FAILED if known.retry else Phase.FAILED
    return Verdict(
        phase=phase,
        reason=known.reason,
        message=messages.shorten_message(known.message),
        cause=known.cause,
        retry=known.retry,
    )


def _build_verdict(phase: Phase, reason: str, message: str) -> Verdict:
    return Verdict(phase=phase, reason=reason, message=messages.shorten_message(message))


# ---- ends


def _judge_success(status: JobStatus, judging: JudgingSettings, now: datetime) -> Verdict:
    ended = (status.job.completed if status.job else None) or (
        status.condition.since if status.condition else None
    )
    if status.unsettled and ended is not None and now - ended <= judging.success_settling_period:
        return _build_verdict(
            Phase.RUNNING, "AwaitingReplicas", "the job has succeeded; a restarted replica has not ended"
        )
    if status.death is None:
        return _build_verdict(
            Phase.SUCCEEDED, "Succeeded", f"job {messages.format_job_name(status)} succeeded"
        )
    return _judge_root_cause(
        status, "the job has succeeded, but a replica wrote this error and did not recover"
    )


# The longest delay between the watch event of a failed job and that of the pod that caused the failure.
_NEWS: Final = timedelta(seconds=5)


def _can_await_termination(status: JobStatus) -> bool:
    """True if the watch may not have delivered the termination of a pod.

    False if a pod is gone or being deleted, because no further state is expected.
    """
    complete = len(status.pods) >= status.total and all(pod.deleted is None for pod in status.pods)
    return complete and any(pod.phase in ("Pending", "Running") for pod in status.pods)


def _judge_failure(status: JobStatus, now: datetime) -> Verdict:
    condition = status.condition
    message = condition.message if condition is not None else ""
    death = status.death
    if "active longer than specified deadline" in message and (death is None or death.failure.stopped):
        return build_failure(
            Cause.USER_ERROR, "DeadlineExceeded", f"it ran for longer than its deadline allows\n{message}"
        )
    if death is not None:
        return _judge_root_cause(status, "")
    if "backoff limit" in message:
        return build_failure(
            Cause.SYSTEM_ERROR,
            "BackoffLimitExceeded",
            messages.join_lines(
                "it failed more often than its backoff limit allows, and its pods are gone",
                message,
                messages.format_unused_outputs(status),
                "to see the first failure, use restart policy Never or no backoff limit",
            ),
        )
    if condition is not None and status.job is not None and status.job.unfinished:
        # The operator would continue the job, so its pods exist and show no reason.
        return build_failure(
            Cause.PREEMPTED,
            condition.reason,
            messages.join_lines(message, messages.get_remedy(Cause.PREEMPTED)),
        )
    fresh = condition is not None and condition.since is not None and now - condition.since < _NEWS
    if fresh and _can_await_termination(status):
        return _build_verdict(
            Phase.RUNNING, "CollectingTerminations", f"the operator reports that the job failed: {message}"
        )
    return build_failure(
        Cause.SYSTEM_ERROR,
        (condition.reason if condition else "") or "Failed",
        messages.join_lines(
            "the job failed, and the pods that could show the reason no longer exist",
            message,
            messages.format_missing_pods(status),
            messages.format_unused_outputs(status),
            messages.get_remedy(Cause.SYSTEM_ERROR),
        ),
    )


def _judge_missing_job(status: JobStatus) -> Verdict:
    death = status.death
    if death is not None and not death.failure.stopped:
        return _judge_root_cause(status, f"the job {messages.LOSS[status.state]}")
    if status.outputs or _has_completed_work(status):
        return _build_verdict(
            Phase.SUCCEEDED, "Succeeded", f"the work was complete; the job {messages.LOSS[status.state]}"
        )
    return build_failure(
        Cause.SYSTEM_ERROR,
        "JobNotFound" if status.state is JobState.GONE else "Deleted",
        messages.join_lines(
            f"the job {messages.DELETION[status.state]} before it ended, and not by Flyte",
            messages.format_unused_outputs(status),
            "find out what deleted it: a user, a cleanup of the namespace or a time to live",
        ),
    )


def _has_completed_work(status: JobStatus) -> bool:
    """True if the remaining pods succeeded: the master, or all other replicas if there is no master."""
    masters = [pod for pod in status.pods if pod.role == "master"]
    return bool(status.pods) and all(pod.phase == "Succeeded" for pod in masters or status.pods)


def _judge_root_cause(status: JobStatus, note: str) -> Verdict:
    death = status.death
    assert death is not None, "only called where there is one"  # noqa: S101 - for the type checker.
    retry = death.recoverable or is_retryable(death.cause)
    message = messages.format_failure(status, death, note, retry=retry)
    return build_failure(
        death.cause, messages.get_termination_reason(death), message, recoverable=death.recoverable
    )


# ---- before the end


def _judge_active_job(status: JobStatus, judging: JudgingSettings, now: datetime) -> Verdict:
    begun = status.has_run and status.enough
    phase = Phase.RUNNING if begun else _judge_start_phase(status, judging, now)
    wait = statuses.find_first_reason(status)
    lasting = list_reportable_warnings(status, judging, now)
    reason = wait.reason if wait is not None and wait.reason and phase is not Phase.RUNNING else ""
    message = messages.format_progress(status, lasting, queued=phase is Phase.QUEUED)
    return Verdict(
        phase=phase,
        reason=reason or messages.STATES[status.state],
        message=messages.shorten_message(message),
        cause=wait.cause if wait is not None and pending_reasons.is_blocking(wait) else None,
    )


def list_reportable_warnings(status: JobStatus, judging: JudgingSettings, now: datetime) -> list[JobWarning]:
    """Return the warnings of a running job that have lasted long enough to be reported."""
    return [note for note in status.notes if _is_reportable(note, judging, now)]


def _is_reportable(note: JobWarning, judging: JudgingSettings, now: datetime) -> bool:
    return note.since is None or now - note.since > judging.unscheduled_pod_grace_period


# The cache of jobs may be ahead of the cache of pods.
_CACHES: Final = timedelta(seconds=2)


def _judge_start_phase(status: JobStatus, judging: JudgingSettings, now: datetime) -> Phase:
    """Return the phase before all replicas have first run, without going back to an earlier phase."""
    started = status.job.started if status.job else None
    if initializers.have_node(status.initializers):
        return Phase.INITIALIZING
    unplaced = [wait for wait in status.waits if wait.stage <= PendingStage.UNPLACED and wait.replicas]
    if status.has_been_suspended or status.state is JobState.SUSPENDED:
        if started is None:
            return Phase.WAITING_FOR_RESOURCES
        # After a second admission, the pods of the first may have been bound to nodes.
        waits = bool(unplaced) or (status.missing and now - started < admission.CREATION)
        return Phase.WAITING_FOR_RESOURCES if status.admitted_once and waits else Phase.INITIALIZING
    if started is not None and status.replaced:
        return Phase.INITIALIZING
    if started is not None and not unplaced and not (status.missing and now - started < _CACHES):
        return Phase.INITIALIZING
    overdue = any(
        pending_reasons.has_lasted_longer(wait, judging.unscheduled_pod_grace_period, now)
        for wait in unplaced
    )
    overdue |= bool(list_reportable_warnings(status, judging, now))
    is_waiting = (
        status.has_been_held or overdue or any(wait.reason for wait in statuses.list_unbound_reasons(status))
    )
    return Phase.WAITING_FOR_RESOURCES if is_waiting else Phase.QUEUED

"""Rules that derive the Flyte phase and its message from a job's status.

FlytePropeller publishes each phase once, so the phase must not return to an earlier one. The rules store no
state: they derive the past progress of a job from its Kubernetes objects.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from typing_extensions import assert_never

from backend_plugin.core.job_conditions import FAILED
from backend_plugin.core.judging import messages, pending_reasons, replica_pods, timeouts
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.failure_message import format_failure, get_termination_reason
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.pending import JobWarning, PendingReason
from backend_plugin.core.judging.terminations import ReplicaTermination
from backend_plugin.core.judging.timeouts import is_exceeded
from backend_plugin.core.judging.verdict import Phase, Verdict, build_failure, is_retryable
from backend_plugin.core.judging.verdict_annotation import find_recorded_verdict
from backend_plugin.core.observed import Condition, get_end_time
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause


def judge_status(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict:
    """Return the Flyte phase of a job, with its reason and message; a pure function of the arguments."""
    recorded = find_recorded_verdict(status.job)
    # A recorded failure is final, unless the job has succeeded in the meantime.
    if recorded is not None and (status.state is not JobState.SUCCEEDED or status.root_cause is not None):
        phase = Phase.RETRYABLE_FAILED if recorded.retry else Phase.FAILED
        return _build_verdict(phase, recorded.reason, recorded.message, recorded.cause)
    if status.reading_outputs and status.state.is_finished:
        text = "the job has ended; its remaining state is being read"
        return _build_verdict(Phase.RUNNING, "CollectingOutputs", text)
    match status.state:
        case JobState.SUCCEEDED:
            return _judge_success(status, rules.judging, now)
        case JobState.FAILED:
            return _judge_failure(status, now)
        case JobState.DELETED | JobState.GONE:
            return _judge_missing_job(status)
        case (
            JobState.UNSEEN
            | JobState.CREATED
            | JobState.SUSPENDED
            | JobState.ADMITTED
            | JobState.RUNNING
            | JobState.RESTARTING
        ):
            return _judge_active_job(status, rules, now)
        case _:
            assert_never(status.state)


def _build_verdict(phase: Phase, reason: str, message: str, cause: Cause | None = None) -> Verdict:
    return Verdict(phase=phase, reason=reason, message=messages.shorten_message(message), cause=cause)


# ---- ends


def _judge_success(status: JobStatus, judging: JudgingSettings, now: datetime) -> Verdict:
    ended = get_end_time(status.job, status.condition)
    if status.unsettled and ended is not None and now - ended <= judging.success_settling_period:
        text = "the job has succeeded; a restarted replica has not ended"
        return _build_verdict(Phase.RUNNING, "AwaitingReplicas", text)
    if status.root_cause is None:
        name = f"{status.job.namespace}/{status.job.name}" if status.job else "of this task"
        return _build_verdict(Phase.SUCCEEDED, "Succeeded", f"job {name} succeeded")
    note = "the job has succeeded, but a replica wrote this error and did not recover"
    return _judge_root_cause(status, status.root_cause, note)


# The longest delay between the watch event of a failed job and that of the pod that caused the failure.
_LONGEST_POD_DELAY: Final = timedelta(seconds=5)


def _judge_failure(status: JobStatus, now: datetime) -> Verdict:
    condition, termination = status.condition or _UNREPORTED, status.root_cause
    is_overdue = "active longer than specified deadline" in condition.message
    if is_overdue and (termination is None or termination.failure.stopped):
        text = "it ran for longer than its deadline allows"
        return build_failure(Cause.USER_ERROR, "DeadlineExceeded", text, condition.message)
    if termination is not None:
        return _judge_root_cause(status, termination, "")
    return _judge_unexplained_failure(status, condition, now)


_UNREPORTED: Final = Condition(type=FAILED, true=True)


def _judge_unexplained_failure(status: JobStatus, condition: Condition, now: datetime) -> Verdict:
    message, since = condition.message, condition.since
    if "backoff limit" in message:
        return build_failure(
            Cause.SYSTEM_ERROR,
            "BackoffLimitExceeded",
            "it failed more often than its backoff limit allows, and its pods are gone",
            message,
            messages.format_unused_outputs(status),
            "to see the first failure, use restart policy Never or no backoff limit",
        )
    if status.job is not None and status.job.unfinished:
        # The operator would continue the job, so its pods exist and show no reason.
        remedy = messages.get_remedy(Cause.PREEMPTED)
        return build_failure(Cause.PREEMPTED, condition.reason, message, remedy)
    # If a pod is gone or being deleted, no further state is expected.
    is_complete = len(status.pods) >= status.total and all(pod.deleted is None for pod in status.pods)
    may_end = is_complete and any(pod.phase in ("Pending", "Running") for pod in status.pods)
    if since is not None and now - since < _LONGEST_POD_DELAY and may_end:
        text = f"the operator reports that the job failed: {message}"
        return _build_verdict(Phase.RUNNING, "CollectingTerminations", text)
    return build_failure(
        Cause.SYSTEM_ERROR,
        condition.reason or "Failed",
        "the job failed, and the pods that could show the reason no longer exist",
        message,
        messages.format_missing_pods(status),
        messages.format_unused_outputs(status),
        messages.get_remedy(Cause.SYSTEM_ERROR),
    )


def _judge_missing_job(status: JobStatus) -> Verdict:
    termination = status.root_cause
    if termination is not None and not termination.failure.stopped:
        return _judge_root_cause(status, termination, f"the job {messages.LOSS[status.state]}")
    if status.outputs or _has_completed_work(status):
        text = f"the work was complete; the job {messages.LOSS[status.state]}"
        return _build_verdict(Phase.SUCCEEDED, "Succeeded", text)
    return build_failure(
        Cause.SYSTEM_ERROR,
        messages.STATES[status.state],
        f"the job {messages.DELETION[status.state]} before it ended, and not by Flyte",
        "find out what deleted it: a user, a cleanup of the namespace or a time to live",
    )


def _has_completed_work(status: JobStatus) -> bool:
    # The master decides about the success, or all replicas if there is no master.
    deciding = [pod for pod in status.pods if pod.role == "master"] or status.pods
    return {pod.phase for pod in deciding} == {"Succeeded"}


def _judge_root_cause(status: JobStatus, termination: ReplicaTermination, note: str) -> Verdict:
    recoverable = termination.failure.recoverable
    message = format_failure(status, termination, note, retry=recoverable or is_retryable(termination.cause))
    return build_failure(
        termination.cause, get_termination_reason(termination), message, recoverable=recoverable
    )


# ---- before the end


def _judge_active_job(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict:
    if (over := timeouts.check_timeouts(status, rules, now)) is not None:
        return over
    judging = rules.judging
    lasting = list_reportable_warnings(status, judging, now)
    begun = status.has_run and status.enough
    phase = Phase.RUNNING if begun else _judge_start_phase(status, judging, lasting, now)
    wait = status.first_reason
    reason = "" if wait is None or phase is Phase.RUNNING else wait.reason
    cause = wait.cause if wait is not None and pending_reasons.is_blocking(wait) else None
    message = messages.format_progress(status, lasting, queued=phase is Phase.QUEUED)
    return _build_verdict(phase, reason or messages.STATES[status.state], message, cause)


def list_reportable_warnings(status: JobStatus, judging: JudgingSettings, now: datetime) -> list[JobWarning]:
    """Return the warnings of a job that have lasted long enough to be reported."""
    grace = judging.unscheduled_pod_grace_period
    return [note for note in status.notes if note.since is None or now - note.since > grace]


# The cache of jobs may be ahead of the cache of pods.
_CACHES: Final = timedelta(seconds=2)


def _judge_start_phase(
    status: JobStatus, judging: JudgingSettings, lasting: Sequence[JobWarning], now: datetime
) -> Phase:
    """Return the Flyte phase of a job whose replicas have not all run yet.

    `lasting` contains the warnings that the verdict reports. If there are any, the phase is never QUEUED.
    """
    if any(pod.is_bound for pod in status.initializers):
        return Phase.INITIALIZING
    unbound = status.unbound_reasons
    unplaced = [wait for wait in unbound if wait.replicas]
    if status.has_been_suspended or status.state is JobState.SUSPENDED:
        return _judge_suspended_phase(status, unplaced, now)
    if _has_been_placed(status, unplaced, now):
        return Phase.INITIALIZING
    is_waiting = lasting or _has_reported_wait(status, unbound, judging, now)
    return Phase.WAITING_FOR_RESOURCES if is_waiting else Phase.QUEUED


def _has_been_placed(status: JobStatus, unplaced: Sequence[PendingReason], now: datetime) -> bool:
    """True if all replicas have Kubernetes nodes, or if they had nodes before a replica was replaced."""
    if status.started is None:
        return False
    is_new = status.missing and now - status.started < _CACHES
    return bool(status.replaced) or not (unplaced or is_new)


def _has_reported_wait(
    status: JobStatus, unbound: Sequence[PendingReason], judging: JudgingSettings, now: datetime
) -> bool:
    grace = judging.unscheduled_pod_grace_period
    is_overdue = any(is_exceeded(grace, wait.since, now) for wait in unbound if wait.replicas)
    return status.has_been_held or is_overdue or any(wait.reason for wait in unbound)


def _judge_suspended_phase(status: JobStatus, unplaced: Sequence[PendingReason], now: datetime) -> Phase:
    if status.started is None:
        return Phase.WAITING_FOR_RESOURCES
    # After a second admission, the pods of the first may have been bound to nodes.
    is_new = status.missing and now - status.started < replica_pods.CREATION
    waits = status.admitted_once and (unplaced or is_new)
    return Phase.WAITING_FOR_RESOURCES if waits else Phase.INITIALIZING

"""Checks of the timeouts of a waiting job; the module `deadline` limits the run time of a job."""

from datetime import datetime, timedelta

from backend_plugin.core.dialects.table import CREATION_FAILURES, get_dialect
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging import messages
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.deadline import check_deadline, get_admission_time, get_limit, is_exceeded
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.pending import PendingReason, PendingStage
from backend_plugin.core.judging.pending_reasons import CONTAINER_CAUSES
from backend_plugin.core.judging.verdict import Verdict, build_failure
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause


def check_timeouts(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict | None:
    """Return the failure of a job that has exceeded a timeout or its deadline, otherwise None."""
    over = check_deadline(status, rules, now) or _check_no_status(status, rules, now)
    if over is not None or _can_continue(status):
        return over
    return (
        _check_start(status, rules.judging, now)
        or _check_scheduling(status, rules.deadlines, now)
        or _check_queue(status, rules, now)
    )


def _can_continue(status: JobStatus) -> bool:
    is_waiting = status.waits or status.state is JobState.SUSPENDED
    return not is_waiting or (status.has_run and status.ready > 0 and status.scales)


def _check_no_status(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict | None:
    # A job that has run may wait for new nodes, and its operator may create the missing pods later.
    if status.has_run or status.started is not None or status.job is None:
        return None
    limit = rules.judging.no_status_timeout
    if not limit or not is_exceeded(limit, get_admission_time(status.job), now):
        return None
    for wait in status.waits:
        # An exceeded quota is temporary.
        if wait.reason in CREATION_FAILURES and wait.cause is not Cause.QUOTA_EXCEEDED:
            return _build_timeout_failure(wait, limit)
    # A queue or a gang scheduler may hold a job before its operator handles it.
    if status.state is not JobState.UNSEEN or status.waits or status.has_been_held:
        return None
    operator, waited = get_dialect(status.job.dialect).operator, messages.format_duration(limit)
    text = f"no operator has handled the job for {waited}: is the {operator} running?"
    remedy = "check its pod in the namespace of the operator, and the log of that pod"
    return build_failure(Cause.SYSTEM_ERROR, "OperatorTimeout", messages.join_lines(text, remedy))


def _check_start(status: JobStatus, judging: JudgingSettings, now: datetime) -> Verdict | None:
    for wait in status.waits:
        if wait.reason == "InvalidImageName" or (wait.never and wait.cause is Cause.INVALID_CONFIG):
            return _build_timeout_failure(wait, timedelta(0))
        limit = _get_start_limit(wait, judging)
        if is_exceeded(limit, wait.since, now):
            return _build_timeout_failure(wait, limit)
    return None


def _get_start_limit(wait: PendingReason, judging: JudgingSettings) -> timedelta:
    if CONTAINER_CAUSES.get(wait.reason) is Cause.IMAGE_PULL:
        return judging.image_pull_backoff_grace_period
    if wait.reason in ("CreateContainerError", "RunContainerError"):
        return judging.create_container_error_grace_period
    if wait.reason == "CreateContainerConfigError":
        return judging.create_container_config_error_grace_period
    is_starting = wait.stage is PendingStage.STARTING and judging.pending_timeout
    return judging.pending_timeout if is_starting else timedelta.max


def _check_scheduling(status: JobStatus, deadlines: Deadlines, now: datetime) -> Verdict | None:
    limit = get_limit(deadlines.pending_seconds, timedelta(0))
    for wait in status.waits if limit else ():
        if wait.stage is PendingStage.HELD:  # The reasons of this stage come first.
            return None
        if wait.stage is PendingStage.UNPLACED and is_exceeded(limit, wait.since, now):
            return _build_timeout_failure(wait, limit)
    return None


def _check_queue(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict | None:
    wait = status.first_reason
    limit = get_limit(rules.deadlines.queue_seconds, _get_queue_timeout(wait, rules.judging))
    is_waiting = status.state is JobState.SUSPENDED or status.unbound_reasons
    if not (limit and is_waiting and is_exceeded(limit, _find_wait_start(status, wait), now)):
        return None
    if wait is not None:
        return _build_timeout_failure(wait, limit)
    text = f"it has been suspended for more than {messages.format_duration(limit)}"
    return build_failure(Cause.QUEUE, "Suspended", text)


def _find_wait_start(status: JobStatus, wait: PendingReason | None) -> datetime | None:
    if not status.has_run:
        created = None if status.job is None else status.job.created
        ends = [pod.termination.finished for pod in status.initializers if pod.termination is not None]
        return max(filter(None, (created, *ends)), default=None)
    source = status.condition if wait is None else wait
    return None if source is None else source.since


def _get_queue_timeout(wait: PendingReason | None, judging: JudgingSettings) -> timedelta:
    by_cause = judging.queue_timeout_by_cause
    usual = judging.queue_timeout if wait is None else by_cause.get(wait.cause.value, judging.queue_timeout)
    return by_cause.get("unsatisfiable", usual) if wait is not None and wait.never else usual


def _build_timeout_failure(wait: PendingReason, limit: timedelta) -> Verdict:
    text = messages.format_pending(wait)
    if limit or not wait.never:
        text = f"{text} (given up after {messages.format_duration(limit)})"
    return build_failure(
        wait.cause, wait.reason or "Pending", messages.join_lines(text, messages.select_remedy(wait))
    )

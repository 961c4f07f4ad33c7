"""Checks of the timeouts of a waiting job, and of the deadline of a job, which counts from its first start.

After a restart of a TrainJob, no object of the cluster contains the time of its first start. So the server
stores this time in an annotation of the job.
"""

from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.dialects.table import CREATION_FAILURES, get_dialect
from backend_plugin.core.job import Deadlines
from backend_plugin.core.job_conditions import SUSPENDED
from backend_plugin.core.judging import messages
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.pending import PendingReason, PendingStage
from backend_plugin.core.judging.pending_reasons import CONTAINER_CAUSES
from backend_plugin.core.judging.verdict import Verdict, build_failure
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import get_time
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

_START_ANNOTATION: Final = "kfpytorch.flyte.org/run-start"


def get_limit(seconds: int | None, default: timedelta) -> timedelta:
    """Return the limit that the task sets in `seconds`; the platform's `default` if `seconds` is None."""
    return default if seconds is None else timedelta(seconds=max(0, seconds))


def is_exceeded(limit: timedelta, since: datetime | None, now: datetime) -> bool:
    """True if the time from `since` to `now` is longer than `limit`; False if `since` is None."""
    return since is not None and now - since > limit


def get_admission_time(job: Job) -> datetime | None:
    """Return the time since which the operator may create pods; None if it is unknown.

    It is the time of the job's last resumption or of its creation, whichever is later.
    """
    resumed = [each.since for each in job.conditions if each.type == SUSPENDED and not each.true]
    return max(filter(None, (job.created, *resumed)), default=None)


def check_timeouts(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict | None:
    """Return the failure of a job that has exceeded a timeout or its deadline, otherwise None."""
    over = _check_deadline(status, rules, now) or _check_no_status(status, rules, now)
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
    return build_failure(Cause.SYSTEM_ERROR, "OperatorTimeout", text, remedy)


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
    return build_failure(wait.cause, wait.reason or "Pending", text, messages.select_remedy(wait))


def _check_deadline(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict | None:
    """Return the failure of a job that has run for longer than its deadline, otherwise None."""
    limit = _get_deadline(status.job, rules)
    recorded = None if status.job is None else _get_recorded_start(status.job)
    # The earlier of the start in the job's annotation and the first start of its present pods.
    start = min(filter(None, (recorded, status.run_start)), default=None)
    if not (limit and status.has_run) or not is_exceeded(limit, start, now):
        return None
    text = f"it ran for longer than its deadline of {messages.format_duration(limit)} allows"
    remedy = "raise the deadline, or save checkpoints and resume from them"
    return build_failure(Cause.USER_ERROR, "DeadlineExceeded", text, remedy)


def _get_deadline(job: Job | None, rules: JudgingContext) -> timedelta:
    """Return the time for which a job may run; zero if the job has no deadline."""
    if job is not None and job.active_deadline is not None:
        return job.active_deadline
    return get_limit(rules.deadlines.active_seconds, rules.judging.active_deadline)


def _get_recorded_start(job: Job) -> datetime | None:
    """Return the start time in the job's annotation; None if absent, or if the job was resumed later."""
    recorded, admitted = get_time(job.annotations, _START_ANNOTATION), get_admission_time(job)
    return None if recorded is None or (admitted is not None and recorded < admitted) else recorded


def needs_start(job: Job | None, rules: JudgingContext) -> bool:
    """True if an active job with a deadline needs an annotation with its start time, and has no valid one.

    A job whose status keeps the start time needs no annotation.
    """
    if job is None or job.deleting or job.end_condition is not None or get_dialect(job.dialect).keeps_start:
        return False
    return bool(_get_deadline(job, rules)) and _get_recorded_start(job) is None


def build_start_patch(status: JobStatus) -> Manifest | None:
    """Return the merge patch that records the time at which a job started; None if it has not run yet."""
    began = status.run_start
    if began is None or status.job is None or not status.has_run:
        return None
    # The clock of a Kubernetes node may be behind that of the API server.
    start = max(began, get_admission_time(status.job) or began)
    return {"metadata": {"annotations": {_START_ANNOTATION: start.strftime("%Y-%m-%dT%H:%M:%SZ")}}}

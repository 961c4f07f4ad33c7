"""The timeouts of a job while it waits; `deadline` has the limit of its run."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core import initializers, messages, pending_reasons
from backend_plugin.core import job_status as statuses
from backend_plugin.core.deadline import check_deadline, get_admission_time, get_limit
from backend_plugin.core.dialects.table import CREATION_FAILURES, get_dialect
from backend_plugin.core.job import Deadlines
from backend_plugin.core.job_status import JobState, JobStatus
from backend_plugin.core.pending import PendingReason, PendingStage
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.core.verdict import Verdict, build_failure
from kfpytorch_common.causes import Cause


def check_timeouts(
    status: JobStatus, judging: JudgingSettings, deadlines: Deadlines, now: datetime
) -> Verdict | None:
    """Return the failure of a job that has exceeded a timeout or its deadline, otherwise None."""
    over = check_deadline(status, judging, deadlines, now) or _check_no_status(
        status, judging, deadlines, now
    )
    if over is not None or _can_continue(status):
        return over
    return (
        _check_start(status, judging, now)
        or _check_scheduling(status, deadlines, now)
        or _check_queue(status, judging, deadlines, now)
    )


def _can_continue(status: JobStatus) -> bool:
    """True if the job waits for nothing, or trains and can continue without what it waits for."""
    if not status.waits and status.state is not JobState.SUSPENDED:
        return True
    return status.has_run and status.ready > 0 and status.job is not None and status.job.scales


def _check_no_status(
    status: JobStatus, judging: JudgingSettings, deadlines: Deadlines, now: datetime
) -> Verdict | None:
    job = status.job
    # A job that has run loses nodes and gets them again; a failed creation may be repeated then.
    if status.has_run or (job is not None and job.started is not None):
        return None
    limit = get_limit(deadlines.no_status_seconds, judging.no_status_timeout)
    began = get_admission_time(job) if job is not None else None
    age = now - began if began is not None else timedelta(0)
    if not limit or age <= limit:
        return None
    for wait in status.waits:
        if wait.reason in CREATION_FAILURES and wait.cause in (
            Cause.INVALID_CONFIG,
            Cause.SYSTEM_ERROR,
        ):
            return _build_timeout_failure(wait, limit)
    # A queue or a gang scheduler may hold a job before its operator handles it.
    if status.state is not JobState.UNSEEN or status.waits or status.has_been_held:
        return None
    return build_failure(
        Cause.SYSTEM_ERROR,
        "OperatorTimeout",
        messages.join_lines(
            f"no operator has handled the job for {messages.format_duration(limit)}: is the "
            f"{get_dialect(job.dialect if job else '').operator} running?",
            "check its pod in the namespace of the operator, and the log of that pod",
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
"""The setting with the grace period for a container's waiting reason; the default is `pending_timeout`."""


def _check_start(status: JobStatus, judging: JudgingSettings, now: datetime) -> Verdict | None:
    """Return the failure for a replica that is bound to a Kubernetes node and has not started in time."""
    pending = judging.pending_timeout
    for wait in status.waits:
        if wait.reason == "InvalidImageName" or (wait.never and wait.cause is Cause.INVALID_CONFIG):
            return _build_timeout_failure(wait, timedelta(0))
        knob = _GRACE.get(wait.reason)
        if knob is not None:
            limit: timedelta = getattr(judging, knob)
            if wait.since is not None and now - wait.since > limit:
                return _build_timeout_failure(wait, limit)
        elif (
            wait.stage is PendingStage.STARTING
            and pending
            and pending_reasons.has_lasted_longer(wait, pending, now)
        ):
            return _build_timeout_failure(wait, pending)
    return None


def _check_scheduling(status: JobStatus, deadlines: Deadlines, now: datetime) -> Verdict | None:
    """Return the failure of an admitted job if a replica was not bound to a Kubernetes node in time."""
    limit = get_limit(deadlines.pending_seconds, timedelta(0))
    if not limit or any(wait.stage is PendingStage.HELD for wait in status.waits):
        return None
    for wait in status.waits:
        if wait.stage is PendingStage.UNPLACED and pending_reasons.has_lasted_longer(wait, limit, now):
            return _build_timeout_failure(wait, limit)
    return None


def _check_queue(
    status: JobStatus, judging: JudgingSettings, deadlines: Deadlines, now: datetime
) -> Verdict | None:
    wait = statuses.find_first_reason(status)
    limit = get_limit(deadlines.queue_seconds, _get_queue_timeout(wait, judging))
    if not limit or (status.state is not JobState.SUSPENDED and not statuses.list_unbound_reasons(status)):
        return None
    own = wait.since if wait is not None else status.condition.since if status.condition else None
    since = own if status.has_run else _find_queue_start(status)
    if since is None or now - since <= limit:
        return None
    if wait is None:
        return build_failure(
            Cause.QUEUE, "Suspended", f"it has been suspended for more than {messages.format_duration(limit)}"
        )
    return _build_timeout_failure(wait, limit)


def _find_queue_start(status: JobStatus) -> datetime | None:
    """Return the time from which a job that has not run waits for its nodes: after its initializers."""
    known = (status.job.created if status.job else None, initializers.find_end(status.initializers))
    return max((each for each in known if each is not None), default=None)


def _get_queue_timeout(wait: PendingReason | None, judging: JudgingSettings) -> timedelta:
    """Return the queue timeout in the platform's settings for the cause of the wait."""
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

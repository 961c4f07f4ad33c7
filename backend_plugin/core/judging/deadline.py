"""The deadline of a job, which counts from its first start.

No object of the cluster keeps this time after a restart of a TrainJob, so the server writes it to the job.
"""

from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.job_conditions import SUSPENDED
from backend_plugin.core.judging import messages
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_status import JobStatus
from backend_plugin.core.judging.verdict import Verdict, build_failure
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import get_time
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

ANNOTATION: Final = "kfpytorch.flyte.org/run-start"


def get_limit(seconds: int | None, default: timedelta) -> timedelta:
    """Return the time limit that the task sets in `seconds`; the platform's `default` if that is None."""
    return default if seconds is None else timedelta(seconds=max(0, seconds))


def is_exceeded(limit: timedelta, since: datetime | None, now: datetime) -> bool:
    """True if `since` is known, and longer ago than `limit`."""
    return since is not None and now - since > limit


def get_admission_time(job: Job) -> datetime | None:
    """Return the time since which the operator may create pods; None if it is unknown.

    It is the time of the job's last resumption or of its creation, whichever is later.
    """
    resumed = [each.since for each in job.conditions if each.type == SUSPENDED and not each.true]
    return max(filter(None, (job.created, *resumed)), default=None)


def check_deadline(status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict | None:
    """Return the failure of a job that has run for longer than its deadline, otherwise None."""
    limit = _get_deadline(status.job, rules)
    recorded = None if status.job is None else _get_recorded_start(status.job)
    # The earlier of the start in the job's annotation and the first start of its present pods.
    start = min(filter(None, (recorded, status.run_start)), default=None)
    if not limit or not status.has_run or not is_exceeded(limit, start, now):
        return None
    text = f"it ran for longer than its deadline of {messages.format_duration(limit)} allows"
    remedy = "raise the deadline, or save checkpoints and resume from them"
    return build_failure(Cause.USER_ERROR, "DeadlineExceeded", messages.join_lines(text, remedy))


def _get_deadline(job: Job | None, rules: JudgingContext) -> timedelta:
    """Return the deadline of a job; zero for none."""
    if job is not None and job.active_deadline is not None:
        return job.active_deadline
    return get_limit(rules.deadlines.active_seconds, rules.judging.active_deadline)


def _get_recorded_start(job: Job) -> datetime | None:
    """Return the start time in the job's annotation; None if absent, or if the job was resumed later."""
    recorded, admitted = get_time(job.annotations, ANNOTATION), get_admission_time(job)
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
    return {"metadata": {"annotations": {ANNOTATION: start.strftime("%Y-%m-%dT%H:%M:%SZ")}}}

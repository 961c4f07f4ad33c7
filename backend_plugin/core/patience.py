"""Time limits of a job: the timeouts while it waits, and the deadline while it runs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core import status as statuses
from backend_plugin.core import waiting, wording
from backend_plugin.core.job import Deadlines
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.status import JobStatus, State
from backend_plugin.core.task_phase import TaskPhase, failed
from backend_plugin.core.waits import Stage, Wait
from kfpytorch_common.causes import Cause


def ended(status: JobStatus, judging: Judging, deadlines: Deadlines, now: datetime) -> TaskPhase | None:
    """Return the failure of a job that has exceeded a timeout or its deadline, otherwise None."""
    over = _past_deadline(status, judging, deadlines, now) or _unseen(status, judging, deadlines, now)
    if over is not None or _does_without(status):
        return over
    return (
        _stuck(status, judging, now)
        or _unplaced_too_long(status, deadlines, now)
        or _queued_too_long(status, judging, deadlines, now)
    )


def _does_without(status: JobStatus) -> bool:
    """True if the job trains and can continue without the replicas that it waits for."""
    return status.has_run and status.ready > 0 and status.job is not None and status.job.scales


def _timer(said: int | None, default: timedelta) -> timedelta:
    return default if said is None else timedelta(seconds=max(0, said))


def _past_deadline(
    status: JobStatus, judging: Judging, deadlines: Deadlines, now: datetime
) -> TaskPhase | None:
    own = status.job.active_deadline if status.job else None
    limit = own if own is not None else _timer(deadlines.active_seconds, judging.active_deadline)
    # Zero means zero in the job's spec, and "not set" in the settings. A deadline of zero is not useful, so
    # both are treated as no deadline.
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
            "raise the deadline, or save checkpoints and resume from them",
        ),
    )


def _unseen(status: JobStatus, judging: Judging, deadlines: Deadlines, now: datetime) -> TaskPhase | None:
    limit = _timer(deadlines.no_status_seconds, judging.no_status_timeout)
    job = status.job
    age = now - job.created if job is not None and job.created is not None else timedelta(0)
    if not limit or age <= limit or (job is not None and job.started is not None):
        return None
    for wait in status.waits:
        if wait.reason.startswith("FailedCreate") and wait.cause in (Cause.CONFIG, Cause.INFRA):
            return _given_up(wait, limit)
    # A queue or a gang scheduler may hold a job before its operator handles it.
    if status.state is not State.UNSEEN or status.waits or status.has_been_held:
        return None
    return failed(
        Cause.INFRA,
        "NeverSeen",
        wording.lines(
            f"no operator has handled the job for {wording.duration(limit)}: is the training-operator "
            "running?",
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


def _stuck(status: JobStatus, judging: Judging, now: datetime) -> TaskPhase | None:
    """Return the failure for a replica that is bound to a Kubernetes node and has not started in time."""
    pending = judging.pending_timeout
    for wait in status.waits:
        if wait.reason == "InvalidImageName" or (wait.never and wait.cause is Cause.CONFIG):
            return _given_up(wait, timedelta(0))
        knob = _GRACE.get(wait.reason)
        if knob is not None:
            limit: timedelta = getattr(judging, knob)
            if wait.since is not None and now - wait.since > limit:
                return _given_up(wait, limit)
        elif wait.stage is Stage.STARTING and pending and waiting.longer_than(wait, pending, now):
            return _given_up(wait, pending)
    return None


def _unplaced_too_long(status: JobStatus, deadlines: Deadlines, now: datetime) -> TaskPhase | None:
    """Return the failure for a replica that no queue holds and that was not bound to a node in time."""
    limit = _timer(deadlines.pending_seconds, timedelta(0))
    if not limit or any(wait.stage is Stage.HELD for wait in status.waits):
        return None
    for wait in status.waits:
        if wait.stage is Stage.UNPLACED and waiting.longer_than(wait, limit, now):
            return _given_up(wait, limit)
    return None


def _queued_too_long(
    status: JobStatus, judging: Judging, deadlines: Deadlines, now: datetime
) -> TaskPhase | None:
    wait = statuses.worst(status)
    limit = _timer(deadlines.queue_seconds, _borne(wait, judging))
    if not limit or (status.state is not State.SUSPENDED and not statuses.held(status)):
        return None
    own = wait.since if wait is not None else status.condition.since if status.condition else None
    since = own if status.has_run else (status.job.created if status.job else None)
    if since is None or now - since <= limit:
        return None
    if wait is None:
        return failed(
            Cause.QUEUE, "Suspended", f"it has been suspended for more than {wording.duration(limit)}"
        )
    return _given_up(wait, limit)


def _borne(wait: Wait | None, judging: Judging) -> timedelta:
    """Return the queue timeout in the platform's settings for the cause of the wait."""
    by_cause = judging.queue_timeouts
    usual = judging.queue_timeout if wait is None else by_cause.get(wait.cause.value, judging.queue_timeout)
    return by_cause.get("never", usual) if wait is not None and wait.never else usual


def _given_up(wait: Wait, limit: timedelta) -> TaskPhase:
    said = wording.wait(wait)
    if limit or not wait.never:
        said = f"{said} (given up after {wording.duration(limit)})"
    return failed(wait.cause, wait.reason or "Pending", wording.lines(said, wording.hint(wait)))

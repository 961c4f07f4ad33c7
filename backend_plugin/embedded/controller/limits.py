"""The limits of a job: deadline, backoff limit and time to live. This module only computes them."""

from datetime import datetime

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller.attempt import (
    Attempt,
    is_active,
    is_retryable,
    is_terminating,
    phase,
    restarts,
)
from backend_plugin.embedded.controller.job import EXIT_CODE, RESTARTING, Role


def reached(attempt: Attempt) -> str:
    """Return the failure message for the limit that the job has reached. Empty if it has reached none."""
    name = attempt.job.name
    if _has_restarted_enough(attempt):
        return f"Job {name} has failed because it has reached the specified backoff limit"
    deadline = _deadline(attempt)
    if deadline is not None and attempt.seen.now >= deadline:
        return f"Job {name} has failed because it was active longer than specified deadline"
    return ""


def expiry(attempt: Attempt) -> datetime | None:
    """Return the time at which a finished job is deleted. None for a suspended job, or without a limit."""
    policy = attempt.job.run_policy
    if policy.ttl_seconds is None or policy.suspend:
        return None
    return attempt.status.moment("completionTime", after=policy.ttl_seconds)


def wake_at(attempt: Attempt) -> datetime | None:
    """Return the time of the next pass that is required without a change of an object."""
    if attempt.status.is_finished:
        return expiry(attempt)
    if attempt.deviations.deadline_has_a_timer and not attempt.job.run_policy.suspend:
        return _deadline(attempt)
    return None


def is_made_anew(role: Role, pod: Manifest) -> bool:
    """True if a failed pod of that role is deleted and recreated."""
    if role.restart_policy == EXIT_CODE:
        return is_retryable(pod)
    return role.restart_policy in RESTARTING


def _deadline(attempt: Attempt) -> datetime | None:
    seconds = attempt.job.run_policy.active_deadline_seconds
    return None if seconds is None else attempt.status.moment("startTime", after=seconds)


def _has_restarted_enough(attempt: Attempt) -> bool:
    limit = attempt.job.run_policy.backoff_limit
    if limit is None:
        return False
    count = sum(_restarts(attempt, role) for role in attempt.job.roles)
    return count >= limit if limit else count > 0 or _has_new_failure(attempt)


def _restarts(attempt: Attempt, role: Role) -> int:
    """Return the container restarts of running pods. With the deviation, recreated pods count too."""
    if role.restart_policy not in RESTARTING:
        return 0
    pods = attempt.pods_of(role)
    count = sum(restarts(pod) for pod in pods if phase(pod) == "Running")
    if not attempt.deviations.recreations_count:
        return count
    past = attempt.status.replicas.get(role.name)
    failing = [pod for pod in pods if phase(pod) == "Failed" and not is_terminating(pod)]
    lost = sum(1 + restarts(pod) for pod in failing if is_made_anew(role, pod))
    return count + lost + (past.restarts if past else 0)


def _has_new_failure(attempt: Attempt) -> bool:
    """True if a pod has failed since the last status update. The operator uses this rule for limit 0."""
    failed = sum(phase(pod) == "Failed" for pod in attempt.pods)
    known = sum(status.failed for status in attempt.status.replicas.values())
    active = sum(is_active(pod) for pod in attempt.pods)
    return failed > known and active != attempt.job.replicas

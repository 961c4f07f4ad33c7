"""When a job has had enough: its time, its restarts, and how long it is kept afterwards.

Lives here: the arithmetic. Does not: what happens then.
"""

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
    """Which limit the job has reached, as its failure's message; nothing if none."""
    name = attempt.job.name
    if _has_restarted_enough(attempt):
        return f"Job {name} has failed because it has reached the specified backoff limit"
    deadline = _deadline(attempt)
    if deadline is not None and attempt.seen.now >= deadline:
        return f"Job {name} has failed because it was active longer than specified deadline"
    return ""


def expiry(attempt: Attempt) -> datetime | None:
    """When a finished job is deleted; None: never. Nor is one that is suspended as well."""
    policy = attempt.job.run_policy
    if policy.ttl_seconds is None or policy.suspend:
        return None
    return attempt.status.moment("completionTime", after=policy.ttl_seconds)


def wake_at(attempt: Attempt) -> datetime | None:
    """When time alone will make a difference."""
    if attempt.status.is_finished:
        return expiry(attempt)
    if attempt.deviations.deadline_has_a_timer and not attempt.job.run_policy.suspend:
        return _deadline(attempt)
    return None


def is_made_anew(role: Role, pod: Manifest) -> bool:
    """Whether a pod of that role that has failed is deleted, so that another takes its place."""
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
    """In place, of the pods that run; and in the past, of those whose place they took."""
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
    """Whether a pod has failed of which the status does not know; the operator's other rule, for limit 0."""
    failed = sum(phase(pod) == "Failed" for pod in attempt.pods)
    known = sum(status.failed for status in attempt.status.replicas.values())
    active = sum(is_active(pod) for pod in attempt.pods)
    return failed > known and active != attempt.job.replicas

"""Computes whether a job has reached its limits: deadline, backoff limit and time to live."""

from datetime import datetime

from backend_plugin.core.reading import get_int
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import count_restarts, get_phase, is_active, is_terminating
from backend_plugin.embedded.operators.pytorchjob.job_spec import EXIT_CODE, RESTARTING, OperatorReplicaSpec
from backend_plugin.embedded.operators.pytorchjob.reconcile_pass import (
    ReconcilePass,
    is_retryable,
    select_role_objects,
)


def find_reached_limit(attempt: ReconcilePass) -> str:
    """Return the failure message if the job has reached its backoff limit or its deadline, else empty."""
    name = attempt.job.name
    if _has_reached_backoff_limit(attempt):
        return f"Job {name} has failed because it has reached the specified backoff limit"
    deadline = _compute_deadline(attempt)
    if deadline is not None and attempt.snapshot.now >= deadline:
        return f"Job {name} has failed because it was active longer than specified deadline"
    return ""


def compute_expiry(attempt: ReconcilePass) -> datetime | None:
    """Return when a finished job is deleted.

    None if the job is suspended, or if it has no time to live or no completion time.
    """
    seconds = get_int(attempt.job.run_policy, "ttlSecondsAfterFinished")
    if seconds is None or attempt.job.is_suspended:
        return None
    return attempt.status.get_time("completionTime", after=seconds)


def compute_wake_time(attempt: ReconcilePass) -> datetime | None:
    """Return the time of the next pass if no object changes before; None if no pass is required."""
    if attempt.status.is_finished:
        return compute_expiry(attempt)
    if not attempt.upstream and not attempt.job.is_suspended:
        return _compute_deadline(attempt)
    return None


def is_recreated(role: OperatorReplicaSpec, pod: Manifest) -> bool:
    """True if a failed pod of that role is deleted and recreated."""
    if role.restart_policy == EXIT_CODE:
        return is_retryable(pod)
    return role.restart_policy in RESTARTING


def _compute_deadline(attempt: ReconcilePass) -> datetime | None:
    seconds = get_int(attempt.job.run_policy, "activeDeadlineSeconds")
    return None if seconds is None else attempt.status.get_time("startTime", after=seconds)


def _has_reached_backoff_limit(attempt: ReconcilePass) -> bool:
    limit = get_int(attempt.job.run_policy, "backoffLimit")
    if limit is None:
        return False
    count = sum(_count_role_restarts(attempt, role) for role in attempt.job.roles)
    return count >= limit if limit else count > 0 or _has_new_failure(attempt)


def _count_role_restarts(attempt: ReconcilePass, role: OperatorReplicaSpec) -> int:
    """Return the number of restarts of a role that count towards `backoffLimit`.

    These are the container restarts of running pods. Recreated pods and the restarts of their containers
    count, too, but not upstream.
    """
    if role.restart_policy not in RESTARTING:
        return 0
    pods = select_role_objects(attempt.pods, role)
    count = sum(count_restarts(pod) for pod in pods if get_phase(pod) == "Running")
    if attempt.upstream:
        return count
    past = attempt.status.get_count(role.name, "restarts")
    failing = [pod for pod in pods if get_phase(pod) == "Failed" and not is_terminating(pod)]
    lost = sum(1 + count_restarts(pod) for pod in failing if is_recreated(role, pod))
    return count + lost + past


def _has_new_failure(attempt: ReconcilePass) -> bool:
    """True if more pods have failed than the status counts, and not all replicas are active.

    The operator uses this rule for limit 0.
    """
    failed = sum(get_phase(pod) == "Failed" for pod in attempt.pods)
    known = sum(attempt.status.get_count(role, "failed") for role in attempt.status.replicas)
    active = sum(is_active(pod) for pod in attempt.pods)
    return failed > known and active != attempt.job.replicas

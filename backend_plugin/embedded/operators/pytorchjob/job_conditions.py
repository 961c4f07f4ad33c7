"""Derives the conditions of a job from the replica counts of its roles. `replicas` computes the counts."""

from dataclasses import replace

from backend_plugin.embedded.operators.pytorchjob import events, objects
from backend_plugin.embedded.operators.pytorchjob.job_spec import MASTER, NEVER, OperatorReplicaSpec
from backend_plugin.embedded.operators.pytorchjob.reconcile_pass import ReconcilePass
from backend_plugin.embedded.operators.pytorchjob.status import (
    FAILED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    format_reason,
)


def update_conditions(attempt: ReconcilePass) -> None:
    """Set the conditions, times and selectors of the status from its replica counts."""
    if "startTime" not in attempt.status.times:
        attempt.status.set_start_time()
    has_master = attempt.job.find_role(MASTER) is not None
    for role in attempt.job.roles:
        _set_selector(attempt, role)
        if not has_master:
            _judge_workers(attempt, role)
        elif role.name == MASTER and _judge_master(attempt, role):
            # The operator does not evaluate the remaining roles.
            return
        _judge_failures(attempt, role)


def _set_selector(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    status = attempt.status.replicas[role.name]
    attempt.status.replicas[role.name] = replace(status, selector=objects.format_selector(attempt.job, role))


def _judge_master(attempt: ReconcilePass, role: OperatorReplicaSpec) -> bool:
    """Set the conditions from the Master. Return True if the job has succeeded."""
    status = attempt.status.replicas[role.name]
    if status.active:
        attempt.status.set_condition(RUNNING, f"PyTorchJob {attempt.job.name} is running.")
    if role.replicas == status.succeeded:
        _mark_succeeded(attempt, f"PyTorchJob {attempt.job.name} is successfully completed.")
        return True
    return False


def _judge_workers(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    """Set the conditions of a job without a Master. One succeeded worker is enough if the job is elastic."""
    status = attempt.status.replicas[role.name]
    whole_name = f"{attempt.job.namespace}/{attempt.job.name}"
    is_enough = attempt.job.elastic is not None and status.succeeded > 0
    if role.replicas == status.succeeded or is_enough:
        _mark_succeeded(attempt, f"PyTorchJob {whole_name} successfully completed.")
    elif status.active:
        attempt.status.set_condition(RUNNING, f"PyTorchJob {whole_name} is running.")


def _mark_succeeded(attempt: ReconcilePass, message: str) -> None:
    if attempt.deviations.one_end and attempt.status.is_finished:
        return
    attempt.record_event(events.NORMAL, format_reason(SUCCEEDED), message)
    attempt.status.ensure_completion_time()
    attempt.status.set_condition(SUCCEEDED, message)


def _judge_failures(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    status = attempt.status.replicas[role.name]
    if not status.failed or role.replicas <= status.succeeded + status.active:
        return
    if attempt.deviations.one_end and attempt.status.is_finished:
        return
    because = f"because {status.failed} {role.name} replica(s) failed."
    if role.restart_policy != NEVER:
        message = f"PyTorchJob {attempt.job.name} is restarting {because}"
        attempt.record_event(events.WARNING, format_reason(RESTARTING), message)
        attempt.status.set_condition(RESTARTING, message)
        return
    message = f"PyTorchJob {attempt.job.name} is failed {because}"
    attempt.record_event(events.NORMAL, format_reason(FAILED), message)
    attempt.status.ensure_completion_time()
    attempt.status.set_condition(FAILED, message)

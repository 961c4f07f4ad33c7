"""Derives the conditions of a job from the replica counts of its roles. `replicas` computes the counts."""

from dataclasses import replace

from backend_plugin.embedded.controller import events, objects
from backend_plugin.embedded.controller.attempt import Attempt
from backend_plugin.embedded.controller.job import MASTER, NEVER, Role
from backend_plugin.embedded.controller.status import FAILED, RESTARTING, RUNNING, SUCCEEDED, reason


def judge(attempt: Attempt) -> None:
    """Set the conditions, times and selectors of the status from its replica counts."""
    if "startTime" not in attempt.status.times:
        attempt.status.begin()
    if attempt.deviations.selectors_are_whole:
        for role in attempt.job.roles:
            _select(attempt, role)
    has_master = attempt.job.role(MASTER) is not None
    for role in attempt.job.roles:
        _select(attempt, role)
        if not has_master:
            _judge_workers(attempt, role)
        elif role.name == MASTER and _judge_master(attempt, role):
            # The operator does not evaluate the remaining roles.
            return
        _judge_failures(attempt, role)


def _select(attempt: Attempt, role: Role) -> None:
    status = attempt.status.replicas[role.name]
    attempt.status.replicas[role.name] = replace(status, selector=objects.selector(attempt.job, role))


def _judge_master(attempt: Attempt, role: Role) -> bool:
    """Set the conditions from the Master. Return True if the job has succeeded."""
    status = attempt.status.replicas[role.name]
    if status.active:
        attempt.status.say(RUNNING, f"PyTorchJob {attempt.job.name} is running.")
    if role.replicas == status.succeeded:
        _succeed(attempt, f"PyTorchJob {attempt.job.name} is successfully completed.")
        return True
    return False


def _judge_workers(attempt: Attempt, role: Role) -> None:
    """Set the conditions of a job without a Master. One succeeded worker is enough if the job is elastic."""
    status = attempt.status.replicas[role.name]
    whole_name = f"{attempt.job.namespace}/{attempt.job.name}"
    is_enough = attempt.job.elastic is not None and status.succeeded > 0
    if role.replicas == status.succeeded or is_enough:
        _succeed(attempt, f"PyTorchJob {whole_name} successfully completed.")
    elif status.active:
        attempt.status.say(RUNNING, f"PyTorchJob {whole_name} is running.")


def _succeed(attempt: Attempt, said: str) -> None:
    if attempt.deviations.one_end and attempt.status.is_finished:
        return
    attempt.tell(events.NORMAL, reason(SUCCEEDED), said)
    attempt.status.complete()
    attempt.status.say(SUCCEEDED, said)


def _judge_failures(attempt: Attempt, role: Role) -> None:
    status = attempt.status.replicas[role.name]
    if not status.failed or role.replicas <= status.succeeded + status.active:
        return
    if attempt.deviations.one_end and attempt.status.is_finished:
        return
    because = f"because {status.failed} {role.name} replica(s) failed."
    if role.restart_policy != NEVER:
        said = f"PyTorchJob {attempt.job.name} is restarting {because}"
        attempt.tell(events.WARNING, reason(RESTARTING), said)
        attempt.status.say(RESTARTING, said)
        return
    said = f"PyTorchJob {attempt.job.name} is failed {because}"
    attempt.tell(events.NORMAL, reason(FAILED), said)
    attempt.status.complete()
    attempt.status.say(FAILED, said)

"""Composes one pass of the controller from its stages. It contains their order, not their rules."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller import events, limits, replicas, verdict
from backend_plugin.embedded.controller.attempt import (
    Attempt,
    is_controlled_by,
    is_terminating,
    name,
    of_job,
    phase,
)
from backend_plugin.embedded.controller.deviations import DEFAULT, UPSTREAM, Deviations
from backend_plugin.embedded.controller.environment import CannotBeMade
from backend_plugin.embedded.controller.job import OWN_MANAGER, ROLES, Job, read
from backend_plugin.embedded.controller.status import (
    CREATED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    ReplicaStatus,
    Status,
    reason,
)
from backend_plugin.embedded.controller.values import Action, DeleteJob, DeletePod, Seen, Step


def reconcile(seen: Seen, *, upstream: bool = False, order: Sequence[str] = ROLES) -> Step:
    """Return the actions, events and status that the training-operator derives from the stored objects.

    Args:
        seen: The job and its objects.
        upstream: Reproduce the bugs of training-operator 1.9.3, which `deviations` lists.
        order: The order of the roles. The operator's order is random.
    """
    job = read(seen.job, order)
    if job.run_policy.managed_by not in (None, OWN_MANAGER) or job.is_deleted or not job.roles:
        return Step()
    attempt = _attempt(seen, job, UPSTREAM if upstream else DEFAULT)
    try:
        is_whole = _pass(attempt)
    except CannotBeMade:
        is_whole = False
    if is_whole:
        return _step(attempt)
    return Step(actions=tuple(attempt.actions), recreated=attempt.recreated)


def counted(seen: Seen, step: Step, done: Sequence[Action]) -> Manifest:
    """Return the job after an interrupted pass, with the recreations that are done counted.

    Args:
        seen: The input of the pass.
        step: The result of the pass.
        done: The actions that were executed.
    """
    names = [action.name for action in done if isinstance(action, DeletePod)]
    recreated = [step.recreated[each] for each in names if each in step.recreated]
    if not recreated:
        return seen.job
    status = Status.read(section(seen.job, "status"), seen.now)
    for each in recreated:
        status.replicas.setdefault(each.role, ReplicaStatus())
        status.count(each.role, restarts=each.restarts)
    return {**seen.job, "status": status.manifest()}


def created(job: Manifest, now: datetime) -> Manifest:
    """Return the job with the condition `Created`, as the operator caches it after its start."""
    status = Status.read(section(job, "status"), now)
    status.say(CREATED, f"PyTorchJob {text(section(job, 'metadata'), 'name')} is created.")
    return {**job, "status": status.manifest()}


def _attempt(seen: Seen, job: Job, deviations: Deviations) -> Attempt:
    stored = seen.job
    if deviations.created_is_written and not section(stored, "status").get("conditions"):
        stored = created(stored, seen.now)
    services = of_job(seen.services, job)
    return Attempt(
        seen=seen,
        job=job,
        deviations=deviations,
        status=Status.read(section(stored, "status"), seen.now),
        pods=[pod for pod in of_job(seen.pods, job) if is_controlled_by(pod, job)],
        services=services,
        service_names=frozenset(name(each) for each in services if not is_terminating(each)),
    )


def _pass(attempt: Attempt) -> bool:
    """Run the stages. Return True if the pass was completed, so that its status is stored."""
    if attempt.status.is_finished:
        return _clean_up(attempt)
    if attempt.job.run_policy.suspend:
        _suspend(attempt)
        return True
    if attempt.status.says(SUSPENDED):
        _resume(attempt)
    for pod in attempt.pods:
        attempt.events.extend(events.of_abnormal(attempt.seen, pod))
    limit = limits.reached(attempt)
    if limit:
        return _fail(attempt, limit)
    for role in attempt.job.roles:
        replicas.reconcile_pods(attempt, role)
        replicas.reconcile_services(attempt, role)
    verdict.judge(attempt)
    return True


def _clean_up(attempt: Attempt) -> bool:
    """Delete the pods of a finished job by its `cleanPodPolicy`, and the job after its time to live."""
    policy = attempt.job.run_policy.clean_pod_policy
    for pod in attempt.pods:
        if policy == "None" or (policy == "Running" and phase(pod) not in ("Running", "Pending")):
            continue
        attempt.delete_pod(pod)
        attempt.delete_service(name(pod))
    if not _expire(attempt):
        return False
    if attempt.status.says(SUCCEEDED):
        for role, status in attempt.status.replicas.items():
            succeeded = status.succeeded + status.active
            attempt.status.replicas[role] = replace(status, active=0, succeeded=succeeded)
    return True


def _expire(attempt: Attempt) -> bool:
    """Delete an expired job. Return False if it is deleted or if its time of expiry is unknown."""
    policy = attempt.job.run_policy
    if policy.ttl_seconds is None or policy.suspend:
        return True
    if attempt.deviations.completion_is_timed:
        attempt.status.complete()
    expiry = limits.expiry(attempt)
    if expiry is not None and attempt.seen.now >= expiry:
        attempt.actions.append(DeleteJob())
        return False
    return expiry is not None


def _delete_all(attempt: Attempt) -> None:
    for pod in attempt.pods:
        attempt.delete_pod(pod)
        attempt.delete_service(name(pod))


def _suspend(attempt: Attempt) -> None:
    status = attempt.status
    _delete_all(attempt)
    for role, of_role in status.replicas.items():
        status.replicas[role] = replace(of_role, active=0)
    said = f"PyTorchJob {attempt.job.name} is suspended."
    if status.says(RUNNING):
        status.say(RUNNING, said, word=SUSPENDED, holds="False")
    if not status.says(SUSPENDED):
        status.say(SUSPENDED, said)
    attempt.tell(events.NORMAL, reason(SUSPENDED), said)


def _resume(attempt: Attempt) -> None:
    said = f"PyTorchJob {attempt.job.name} is resumed."
    attempt.status.say(SUSPENDED, said, word="Resumed", holds="False")
    attempt.status.begin()
    attempt.tell(events.NORMAL, reason("Resumed"), said)


def _fail(attempt: Attempt, limit: str) -> bool:
    """Delete all pods of a job that reached a limit, independent of its `cleanPodPolicy`."""
    attempt.status.complete()
    _delete_all(attempt)
    if not attempt.deviations.ends_are_seen and not _expire(attempt):
        attempt.tell(events.NORMAL, reason(FAILED), limit)
        return False
    attempt.tell(events.NORMAL, reason(FAILED), limit)
    attempt.status.say(FAILED, limit)
    return True


def _step(attempt: Attempt) -> Step:
    old = Status.read(section(attempt.seen.job, "status"), attempt.seen.now)
    new = attempt.status
    if attempt.deviations.conditions_stand:
        new.conditions = [_standing(each, old.conditions) for each in new.conditions]
    return Step(
        status=None if new.manifest() == old.manifest() else new.manifest(),
        actions=tuple(attempt.actions),
        recreated=attempt.recreated,
        events=tuple(attempt.events),
        wake_at=limits.wake_at(attempt),
    )


def _standing(new: Manifest, old: Sequence[Manifest]) -> Manifest:
    """Return the old condition if it has the same type, status and reason as the new one."""
    what = ("type", "status", "reason")
    return next((each for each in old if all(each.get(key) == new.get(key) for key in what)), new)

"""One pass of the controller: the page that tells the story.

Lives here: the order of things. Does not: the things; `limits`, `replicas` and `verdict` know them.
"""

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
    """What the training-operator wants, seeing this.

    Args:
        seen: The job and what there is of it.
        upstream: Be training-operator 1.9.3 to the bug; `deviations` lists the differences.
        order: In which the roles are visited, which the operator leaves to chance.
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
    """The job after only these actions of a pass: what is made anew counts all the same. Else as it was."""
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
    """The job as the operator has it in its cache when it sees it for the first time since its own start."""
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
    """Whether it came to its end, so that its status counts."""
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
    """The job is over: remove what its policy does not want to keep, and in time the job."""
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
    """Whether the pass goes on: not if the job is to be deleted now, nor if nobody knows when."""
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
    """A limit ends all pods, whatever the policy."""
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
    """The old condition of which the new one says nothing else."""
    what = ("type", "status", "reason")
    return next((each for each in old if all(each.get(key) == new.get(key) for key in what)), new)

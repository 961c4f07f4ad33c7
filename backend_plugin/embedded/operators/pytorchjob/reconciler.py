"""Runs the stages of a reconcile pass in order. Other modules contain the rules for pods and limits."""

from collections.abc import Sequence
from typing import Final

from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_key, get_name, get_phase
from backend_plugin.embedded.operators.base import Delete, JobSnapshot, ReconcileResult
from backend_plugin.embedded.operators.pytorchjob import objects, reconcile_pass, replicas
from backend_plugin.embedded.operators.pytorchjob.job_spec import OWN_MANAGER, ROLES, read_job_spec
from backend_plugin.embedded.operators.pytorchjob.reconcile_pass import ReconcilePass
from backend_plugin.embedded.operators.pytorchjob.status import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    StatusBuilder,
    format_reason,
)

_CLEANED_PHASES: Final = {"None": (), "Running": ("Running", "Pending")}
"""For each `cleanPodPolicy` except `All`: the phases of the pods to delete when the job ends."""


def reconcile(
    snapshot: JobSnapshot, *, upstream: bool = False, order: Sequence[str] = ROLES
) -> ReconcileResult:
    """Return the actions, events and status that the training-operator derives from the stored objects.

    Args:
        snapshot: The stored objects of the job.
        upstream: True to reproduce the bugs of release 1.9.3. Two differences remain: admission rejects a job
            with too many replicas, and PodGroups and autoscalers are not created.
        order: The order in which roles are reconciled; the operator's order is random.
    """
    job = read_job_spec(snapshot.job, order)
    if job.run_policy.get("managedBy", OWN_MANAGER) != OWN_MANAGER or not job.roles:
        return ReconcileResult()
    attempt = ReconcilePass(snapshot, job, upstream=upstream)
    if _run_stages(attempt):
        return _build_result(attempt)
    return ReconcileResult(actions=tuple(attempt.actions))


def _run_stages(attempt: ReconcilePass) -> bool:
    """Run the stages of the pass in order. Return True if the status of the job is to be stored."""
    if attempt.status.is_finished:
        return _clean_up(attempt)
    if attempt.job.is_suspended:
        _suspend_job(attempt)
        return True
    if attempt.status.has_condition(SUSPENDED):
        _resume_job(attempt)
    for pod in attempt.pods:
        attempt.events.extend(objects.iter_faulty_pod_events(pod))
    limit = reconcile_pass.find_reached_limit(attempt)
    if limit:
        return _fail_job(attempt, limit)
    replicas.reconcile_roles(attempt)
    replicas.update_conditions(attempt)
    return True


def _clean_up(attempt: ReconcilePass) -> bool:
    """Delete the pods of a finished job, and an expired job. Return True if its status is to be stored."""
    phases = _CLEANED_PHASES.get(str(attempt.job.run_policy.get("cleanPodPolicy", "None")))
    _delete_pods(attempt, [pod for pod in attempt.pods if phases is None or get_phase(pod) in phases])
    if not _delete_if_expired(attempt):
        return False
    if attempt.status.has_condition(SUCCEEDED):
        for role, counts in attempt.status.replicas.items():
            attempt.status.add_counts(role, succeeded=counts.pop("active", 0))
    return True


def _delete_if_expired(attempt: ReconcilePass) -> bool:
    """Delete the job if its time to live has passed.

    Return False if the job is deleted, or if it has a time to live but no completion time.
    """
    if "ttlSecondsAfterFinished" not in attempt.job.run_policy or attempt.job.is_suspended:
        return True
    if not attempt.upstream:
        attempt.status.ensure_completion_time()
    expiry = reconcile_pass.compute_expiry(attempt)
    if expiry is not None and attempt.snapshot.now >= expiry:
        attempt.actions.append(Delete(get_key(attempt.snapshot.job)))
        return False
    return expiry is not None


def _delete_pods(attempt: ReconcilePass, pods: Sequence[Manifest]) -> None:
    for pod in pods:
        attempt.delete_pod(pod)
        attempt.delete_service(get_name(pod))


def _suspend_job(attempt: ReconcilePass) -> None:
    status = attempt.status
    _delete_pods(attempt, attempt.pods)
    for counts in status.replicas.values():
        counts.pop("active", None)
    message = f"PyTorchJob {attempt.job.name} is suspended."
    if status.has_condition(RUNNING):
        status.set_condition(RUNNING, message, word=SUSPENDED, holds="False")
    if not status.has_condition(SUSPENDED):
        status.set_condition(SUSPENDED, message)
    attempt.record_event(format_reason(SUSPENDED), message)


def _resume_job(attempt: ReconcilePass) -> None:
    message = f"PyTorchJob {attempt.job.name} is resumed."
    attempt.status.set_condition(SUSPENDED, message, word="Resumed", holds="False")
    attempt.status.set_start_time()
    attempt.record_event(format_reason("Resumed"), message)


def _fail_job(attempt: ReconcilePass, limit: str) -> bool:
    """Set the condition Failed, and delete all pods. Return True if the status is to be stored.

    If `attempt.upstream` is true and the job has already expired, the operator deletes the job instead of
    storing its status.
    """
    attempt.status.ensure_completion_time()
    _delete_pods(attempt, attempt.pods)
    attempt.record_event(format_reason(FAILED), limit)
    if attempt.upstream and not _delete_if_expired(attempt):
        return False
    attempt.status.set_condition(FAILED, limit)
    return True


def _build_result(attempt: ReconcilePass) -> ReconcileResult:
    old = StatusBuilder.from_manifest(get_mapping(attempt.snapshot.job, "status"), attempt.snapshot.now)
    new = attempt.status
    if not attempt.upstream:
        new.conditions = [_select_condition(each, old.conditions) for each in new.conditions]
    return ReconcileResult(
        status=None if new.build_manifest() == old.build_manifest() else new.build_manifest(),
        actions=tuple(attempt.actions),
        events=tuple(attempt.events),
        wake_at=reconcile_pass.compute_wake_time(attempt),
    )


def _select_condition(new: Manifest, old: Sequence[Manifest]) -> Manifest:
    what = ("type", "status", "reason")
    return next((each for each in old if all(each.get(key) == new.get(key) for key in what)), new)

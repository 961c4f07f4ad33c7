"""The state of one reconcile pass, and the limits of its job: deadline, backoff limit and time to live."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    Key,
    build_event_body,
    count_restarts,
    get_label,
    get_name,
    get_owner_uid,
    get_phase,
    is_active,
    is_terminating,
)
from backend_plugin.embedded.operators.base import Action, Delete, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob import objects
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    CONTAINER,
    EXIT_CODE,
    RESTARTING,
    JobSpec,
    OperatorReplicaSpec,
)
from backend_plugin.embedded.operators.pytorchjob.status import CREATED, StatusBuilder, format_reason

# The operator's value for a training container without an exit code.
_UNKNOWN_EXIT: Final = 0xBEEF
_RETRYABLE: Final = 128


class ReconcilePass:
    """The state of one reconcile pass, whose stages change `status`, `actions` and `events`.

    If `upstream` is true, the pass also reproduces the bugs of training-operator 1.9.3; see `reconcile`.
    """

    def __init__(self, snapshot: JobSnapshot, job: JobSpec, *, upstream: bool) -> None:
        self.snapshot, self.job, self.upstream = snapshot, job, upstream
        stored = snapshot.job
        if not upstream and not get_mapping(stored, "status").get("conditions"):
            stored = with_created_condition(stored, snapshot.now)
        self.status = StatusBuilder.from_manifest(get_mapping(stored, "status"), snapshot.now)
        labels = objects.build_job_labels(job).items()
        self.pods = [
            each
            for each in snapshot.pods
            if labels <= get_text_map(each, "metadata", "labels").items() and get_owner_uid(each) == job.uid
        ]
        """The pods that the job owns."""
        self.actions: list[Action] = []
        self.events: list[Manifest] = []
        self._services = frozenset(map(get_name, snapshot.services))
        self._deletions: set[Delete] = set()
        """The deletions in `actions`."""

    def record_event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add a core/v1 event about the job to `events`."""
        self.events.append(build_event_body(objects.OPERATOR, reason, message, warning=warning))

    def report_condition(self, condition: str, message: str, *, warning: bool = False) -> None:
        """Set a condition, and add an event with the same reason and message."""
        self.record_event(format_reason(condition), message, warning=warning)
        self.status.set_condition(condition, message)

    def delete_pod(self, pod: Manifest) -> bool:
        """Add the deletion of a pod to the actions. Return False if it is already being deleted."""
        return not is_terminating(pod) and self._add_deletion("Pod", get_name(pod))

    def delete_service(self, name: str) -> None:
        """Add the deletion of the service with this name to the actions, if the service exists."""
        if name in self._services:
            self._add_deletion("Service", name)

    def _add_deletion(self, kind: str, name: str) -> bool:
        action = Delete(Key(kind, self.job.namespace, name))
        if action in self._deletions:
            return False
        self._deletions.add(action)
        self.actions.append(action)
        return True


def with_created_condition(job: Manifest, now: datetime) -> Manifest:
    """Return the job with the condition `Created`, which training-operator 1.9.3 keeps only in its cache."""
    status = StatusBuilder.from_manifest(get_mapping(job, "status"), now)
    status.set_condition(CREATED, f"PyTorchJob {get_name(job)} is created.")
    return {**job, "status": status.build_manifest()}


def select_role_objects(manifests: Sequence[Manifest], role: OperatorReplicaSpec) -> list[Manifest]:
    """Return the pods or services with the label of the role."""
    return [each for each in manifests if get_label(each, objects.LABELS.role) == role.label]


def list_exit_codes(pod: Manifest) -> list[int]:
    """Return the exit code of the training container as the only entry; empty if it has not terminated."""
    ended = [
        get_mapping(each, "state", "terminated")
        for each in get_mappings(pod, "status", "containerStatuses")
        if each.get("name") == CONTAINER
    ]
    return [get_int(each, "exitCode") or 0 for each in ended if each]


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
    """Return the time at which a finished job is deleted; None if it has no time to live or is suspended."""
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
    """True if the operator deletes and recreates `pod`, a failed pod of `role`."""
    if role.restart_policy == EXIT_CODE:
        return (list_exit_codes(pod) or [_UNKNOWN_EXIT])[-1] >= _RETRYABLE
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


def _has_failed(pod: Manifest) -> bool:
    return get_phase(pod) == "Failed" and not is_terminating(pod)


def _count_role_restarts(attempt: ReconcilePass, role: OperatorReplicaSpec) -> int:
    """Return the number of restarts of a role that count towards `backoffLimit`.

    As in the operator, only container restarts of running pods count if `attempt.upstream` is true.
    """
    if role.restart_policy not in RESTARTING:
        return 0
    pods = select_role_objects(attempt.pods, role)
    count = sum(count_restarts(pod) for pod in pods if get_phase(pod) == "Running")
    if attempt.upstream:
        return count
    past = attempt.status.get_count(role.name, "restarts")
    lost = sum(1 + count_restarts(pod) for pod in filter(_has_failed, pods) if is_recreated(role, pod))
    return count + past + lost


def _has_new_failure(attempt: ReconcilePass) -> bool:
    """True if more pods have failed than the job's status counts, and not all replicas are active.

    This is the operator's rule for a `backoffLimit` of 0.
    """
    failed = sum(get_phase(pod) == "Failed" for pod in attempt.pods)
    known = sum(attempt.status.get_count(role, "failed") for role in attempt.status.replicas)
    active = sum(is_active(pod) for pod in attempt.pods)
    return failed > known and active != attempt.job.replicas

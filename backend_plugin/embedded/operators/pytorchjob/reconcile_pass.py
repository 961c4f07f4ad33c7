"""The state of one reconcile pass, and the limits of its job: deadline, backoff limit and time to live."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    count_restarts,
    get_label,
    get_name,
    get_phase,
    is_active,
    is_terminating,
)
from backend_plugin.embedded.operators.base import Action, DeletePod, DeleteService, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob import objects
from backend_plugin.embedded.operators.pytorchjob.events import NORMAL, build_event
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    CONTAINER,
    EXIT_CODE,
    RESTARTING,
    JobSpec,
    OperatorReplicaSpec,
)
from backend_plugin.embedded.operators.pytorchjob.status import StatusBuilder, format_reason

# The operator's value for a training container without an exit code.
_UNKNOWN_EXIT: Final = 0xBEEF
_RETRYABLE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilePass:
    """The state of one reconcile pass, whose stages change `status`, `actions` and `events`."""

    snapshot: JobSnapshot
    job: JobSpec
    upstream: bool
    """True to reproduce also the bugs of training-operator 1.9.3; see `reconcile`."""
    status: StatusBuilder
    pods: Sequence[Manifest]
    """The pods that the job owns."""
    services: Sequence[Manifest]
    service_names: frozenset[str]
    deletions: set[DeletePod | DeleteService] = field(default_factory=set)
    """The deletions in `actions`."""
    actions: list[Action] = field(default_factory=list)
    events: list[Manifest] = field(default_factory=list)

    def record_event(self, kind: str, reason: str, message: str) -> None:
        """Add a core/v1 event of type `kind` about the job to `events`."""
        self.events.append(build_event(kind, reason, message))

    def report_condition(self, condition: str, message: str, kind: str = NORMAL) -> None:
        """Set a condition, and add an event with the same reason and message; `kind` is the event's type."""
        self.record_event(kind, format_reason(condition), message)
        self.status.set_condition(condition, message)

    def delete_pod(self, pod: Manifest) -> bool:
        """Add the deletion of a pod to the actions. Return False if it is already being deleted."""
        return not is_terminating(pod) and self._add_deletion(DeletePod(get_name(pod)))

    def delete_service(self, name: str) -> None:
        """Add the deletion of the service with this name to the actions, if the service exists."""
        if name in self.service_names:
            self._add_deletion(DeleteService(name))

    def _add_deletion(self, action: DeletePod | DeleteService) -> bool:
        if action in self.deletions:
            return False
        self.deletions.add(action)
        self.actions.append(action)
        return True


def select_role_objects(manifests: Sequence[Manifest], role: OperatorReplicaSpec) -> list[Manifest]:
    """Return the pods or services with the label of that role."""
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
    return count + lost + past


def _has_new_failure(attempt: ReconcilePass) -> bool:
    """True if more pods have failed than the status states, and not all replicas are active.

    This is the operator's rule for a `backoffLimit` of 0.
    """
    failed = sum(get_phase(pod) == "Failed" for pod in attempt.pods)
    known = sum(attempt.status.get_count(role, "failed") for role in attempt.status.replicas)
    active = sum(is_active(pod) for pod in attempt.pods)
    return failed > known and active != attempt.job.replicas

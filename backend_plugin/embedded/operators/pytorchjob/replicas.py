"""Reconciles the pods and services of a PyTorchJob, counts the pods, and derives the job's conditions."""

from collections.abc import Mapping, Sequence
from functools import partial

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import count_restarts, get_label, get_name, get_phase, is_terminating
from backend_plugin.embedded.operators.base import Create
from backend_plugin.embedded.operators.pytorchjob import objects
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    EXIT_CODE,
    MASTER,
    NEVER,
    OperatorReplicaSpec,
)
from backend_plugin.embedded.operators.pytorchjob.reconcile_pass import (
    ReconcilePass,
    is_recreated,
    list_exit_codes,
    select_role_objects,
)
from backend_plugin.embedded.operators.pytorchjob.status import FAILED, RESTARTING, RUNNING, SUCCEEDED


def reconcile_roles(attempt: ReconcilePass) -> None:
    """Add the actions that create and delete pods and services, and count the pods of each role."""
    for role in attempt.job.roles:
        restarts = attempt.status.get_count(role.name, "restarts")
        attempt.status.replicas[role.name] = {"restarts": restarts}
        for at, pod in _map_indexes(attempt.pods, attempt, role).items():
            if pod is None:
                attempt.actions.append(Create(objects.build_pod(attempt.job, role, at)))
            else:
                _reconcile_pod(attempt, role, at, pod)
        _reconcile_services(attempt, role)


def _reconcile_services(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    for at, service in _map_indexes(attempt.snapshot.services, attempt, role).items():
        if service is None:
            attempt.actions.append(Create(objects.build_service(attempt.job, role, at)))
        elif at >= role.replicas:
            attempt.delete_service(get_name(service))


def _map_indexes(
    manifests: Sequence[Manifest], attempt: ReconcilePass, role: OperatorReplicaSpec
) -> Mapping[int, Manifest | None]:
    """Return the objects of a role by replica index. The value is None for a replica without an object."""
    taken = {
        int(get_label(each, objects.LABELS.index)): each for each in select_role_objects(manifests, role)
    }
    if attempt.upstream:
        return {at: taken.get(at) for at in range(max(role.replicas, 1 + max(taken, default=0)))}
    return {at: taken.get(at) for at in sorted({*range(role.replicas), *taken})}


def _reconcile_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, at: int, pod: Manifest) -> None:
    if at >= role.replicas:
        attempt.delete_pod(pod)
        if not attempt.upstream:
            return
    for code in list_exit_codes(pod):
        message = f"Pod: {attempt.job.namespace}.{get_name(pod)} exited with code {code}"
        attempt.record_event("ExitedWithCode", message)
    if get_phase(pod) == "Failed":
        _reconcile_failed_pod(attempt, role, pod)
    _count_pod(attempt, role, pod)


def _reconcile_failed_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, pod: Manifest) -> None:
    job = attempt.job.name
    if is_recreated(role, pod):
        if attempt.delete_pod(pod) and not attempt.upstream:
            attempt.status.add_counts(role.name, restarts=1 + count_restarts(pod))
        message = f"job {job} is restarting because {role.name} replica(s) failed."
        attempt.report_condition(RESTARTING, message, warning=True)
    elif role.restart_policy == EXIT_CODE:
        message = f'job "{job}" is failing because "{role.name}" replica(s) failed.'
        attempt.report_condition(FAILED, message, warning=True)
        if not attempt.upstream:
            attempt.status.ensure_completion_time()


def _count_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, pod: Manifest) -> None:
    """Count a pod by phase. A running pod that is being deleted counts as failed, as in the operator."""
    phase = "Failed" if get_phase(pod) == "Running" and is_terminating(pod) else get_phase(pod)
    count = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(phase)
    if count is not None:
        attempt.status.add_counts(role.name, **{count: 1})


def update_conditions(attempt: ReconcilePass) -> None:
    """Set the conditions, the times and the label selectors in the job's status from its replica counts."""
    if "startTime" not in attempt.status.times:
        attempt.status.set_start_time()
    has_master = attempt.job.find_role(MASTER) is not None
    for role in attempt.job.roles:
        attempt.status.replicas[role.name]["selector"] = objects.format_selector(attempt.job, role)
        if not has_master:
            _update_from_workers(attempt, role)
        elif role.name == MASTER and _update_from_master(attempt, role):
            # The operator does not evaluate the remaining roles.
            return
        _update_from_failures(attempt, role)


def _update_from_master(attempt: ReconcilePass, role: OperatorReplicaSpec) -> bool:
    """Set the conditions from the pod counts of the Master. Return True if the job has succeeded."""
    if attempt.status.get_count(role.name, "active"):
        attempt.status.set_condition(RUNNING, f"PyTorchJob {attempt.job.name} is running.")
    if role.replicas == attempt.status.get_count(role.name, "succeeded"):
        _mark_succeeded(attempt, f"PyTorchJob {attempt.job.name} is successfully completed.")
        return True
    return False


def _update_from_workers(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    """Set the conditions from the pod counts of workers. An elastic job needs only one success."""
    succeeded = attempt.status.get_count(role.name, "succeeded")
    whole_name = f"{attempt.job.namespace}/{attempt.job.name}"
    if role.replicas == succeeded or (attempt.job.elastic is not None and succeeded > 0):
        _mark_succeeded(attempt, f"PyTorchJob {whole_name} successfully completed.")
    elif attempt.status.get_count(role.name, "active"):
        attempt.status.set_condition(RUNNING, f"PyTorchJob {whole_name} is running.")


def _mark_succeeded(attempt: ReconcilePass, message: str) -> None:
    if not attempt.upstream and attempt.status.is_finished:
        return
    attempt.status.ensure_completion_time()
    attempt.report_condition(SUCCEEDED, message)


def _update_from_failures(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    get_count = partial(attempt.status.get_count, role.name)
    failed = get_count("failed")
    if not failed or role.replicas <= get_count("succeeded") + get_count("active"):
        return
    if not attempt.upstream and attempt.status.is_finished:
        return
    because = f"because {failed} {role.name} replica(s) failed."
    if role.restart_policy != NEVER:
        message = f"PyTorchJob {attempt.job.name} is restarting {because}"
        attempt.report_condition(RESTARTING, message, warning=True)
    else:
        attempt.status.ensure_completion_time()
        attempt.report_condition(FAILED, f"PyTorchJob {attempt.job.name} is failed {because}")

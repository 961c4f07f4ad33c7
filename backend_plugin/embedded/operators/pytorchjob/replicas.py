"""Reconciles the pods and services of the roles of a job, and counts the pods."""

from collections.abc import Mapping, Sequence

from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_name, get_phase, is_terminating
from backend_plugin.embedded.operators.actions import CreatePod, CreateService, Recreation
from backend_plugin.embedded.operators.pytorchjob import events, objects
from backend_plugin.embedded.operators.pytorchjob import reconcile_pass as under_way
from backend_plugin.embedded.operators.pytorchjob.job_spec import EXIT_CODE, OperatorReplicaSpec
from backend_plugin.embedded.operators.pytorchjob.limits import is_recreated
from backend_plugin.embedded.operators.pytorchjob.reconcile_pass import ReconcilePass, get_replica_index
from backend_plugin.embedded.operators.pytorchjob.status import (
    FAILED,
    RESTARTING,
    ReplicaStatus,
    format_reason,
)


def reconcile_roles(attempt: ReconcilePass) -> None:
    """Reconcile the pods and the services of each role."""
    for role in attempt.job.roles:
        _reconcile_pods(attempt, role)
        _reconcile_services(attempt, role)


def _reconcile_pods(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    """Create missing pods, delete superfluous pods and failed pods to recreate, and count pods by phase."""
    _reset_count(attempt, role)
    for at, pods in _group_by_index(attempt.list_pods(role), attempt, role).items():
        if not pods:
            _create_pod(attempt, role, at)
        # If an index has two pods, the operator ignores both.
        elif len(pods) == 1:
            _reconcile_pod(attempt, role, at, pods[0])


def _reconcile_services(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    """Create a service for each replica and delete superfluous ones."""
    for at, services in _group_by_index(attempt.list_services(role), attempt, role).items():
        if not services:
            attempt.actions.append(CreateService(objects.build_service(attempt.job, role, at)))
        elif len(services) == 1 and at >= role.replicas:
            attempt.delete_service(get_name(services[0]))


def _reset_count(attempt: ReconcilePass, role: OperatorReplicaSpec) -> None:
    past = attempt.status.replicas.get(role.name, ReplicaStatus())
    attempt.status.replicas[role.name] = ReplicaStatus(restarts=past.restarts)


def _group_by_index(
    manifests: Sequence[Manifest], attempt: ReconcilePass, role: OperatorReplicaSpec
) -> Mapping[int, Sequence[Manifest]]:
    """Return the pods or services of a role by replica index.

    The result has each index below the number of replicas, and each other index with an object. If
    `UpstreamFixes.only_wanted_pods` is False, it has every index up to the highest of these.
    """
    taken: dict[int, list[Manifest]] = {}
    for each in manifests:
        at = get_replica_index(each)
        if at is not None:
            taken.setdefault(at, []).append(each)
    if attempt.deviations.only_wanted_pods:
        places = sorted({*range(role.replicas), *taken})
    else:
        places = list(range(max(role.replicas, 1 + max(taken, default=0))))
    return {place: taken.get(place, ()) for place in places}


def _create_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, at: int) -> None:
    if get_text(role.template, "spec", "restartPolicy"):
        message = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        attempt.record_event(events.WARNING, "SetPodTemplateRestartPolicy", message)
    attempt.actions.append(CreatePod(objects.build_pod(attempt.job, role, at)))


def _reconcile_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, at: int, pod: Manifest) -> None:
    if at >= role.replicas:
        attempt.delete_pod(pod)
        if attempt.deviations.only_wanted_pods:
            return
    for code in under_way.list_exit_codes(pod):
        message = f"Pod: {attempt.job.namespace}.{get_name(pod)} exited with code {code}"
        attempt.record_event(events.NORMAL, "ExitedWithCode", message)
    if get_phase(pod) == "Failed":
        _reconcile_failed_pod(attempt, role, pod)
    _count_pod(attempt, role, pod)


def _reconcile_failed_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, pod: Manifest) -> None:
    job = attempt.job.name
    if is_recreated(role, pod):
        if attempt.delete_pod(pod) and attempt.deviations.recreations_count:
            recreation = Recreation(role.name, 1 + under_way.count_restarts(pod))
            attempt.recreated[get_name(pod)] = recreation
            attempt.status.add_counts(role.name, restarts=recreation.restarts)
        message = f"job {job} is restarting because {role.name} replica(s) failed."
        attempt.record_event(events.WARNING, format_reason(RESTARTING), message)
        attempt.status.set_condition(RESTARTING, message)
    elif role.restart_policy == EXIT_CODE:
        message = f'job "{job}" is failing because "{role.name}" replica(s) failed.'
        attempt.record_event(events.WARNING, format_reason(FAILED), message)
        attempt.status.set_condition(FAILED, message)
        if attempt.deviations.completion_is_timed:
            attempt.status.ensure_completion_time()


def _count_pod(attempt: ReconcilePass, role: OperatorReplicaSpec, pod: Manifest) -> None:
    """Count a pod by its phase. A running pod that is being deleted counts as failed, as in the operator."""
    phase = "Failed" if get_phase(pod) == "Running" and is_terminating(pod) else get_phase(pod)
    count = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(phase)
    if count is not None:
        attempt.status.add_counts(role.name, **{count: 1})

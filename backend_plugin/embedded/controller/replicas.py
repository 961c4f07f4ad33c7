"""Reconciles the pods and services of one role and counts them."""

from collections.abc import Mapping, Sequence

from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller import attempt as under_way
from backend_plugin.embedded.controller import events, objects
from backend_plugin.embedded.controller.attempt import Attempt, index, is_terminating, name, phase
from backend_plugin.embedded.controller.job import EXIT_CODE, Role
from backend_plugin.embedded.controller.limits import is_made_anew
from backend_plugin.embedded.controller.status import FAILED, RESTARTING, ReplicaStatus, reason
from backend_plugin.embedded.controller.values import CreatePod, CreateService, Recreation


def reconcile_pods(attempt: Attempt, role: Role) -> None:
    """Create missing pods, delete superfluous and failed ones, and count the rest."""
    _begin_count(attempt, role)
    for at, pods in _by_index(attempt.pods_of(role), attempt, role).items():
        if not pods:
            _create_pod(attempt, role, at)
        # If an index has two pods, the operator ignores both.
        elif len(pods) == 1:
            _reconcile_pod(attempt, role, at, pods[0])


def reconcile_services(attempt: Attempt, role: Role) -> None:
    """Create a service for each replica and delete superfluous ones."""
    for at, services in _by_index(attempt.services_of(role), attempt, role).items():
        if not services:
            attempt.actions.append(CreateService(objects.service(attempt.job, role, at)))
        elif len(services) == 1 and at >= role.replicas:
            attempt.delete_service(name(services[0]))


def _begin_count(attempt: Attempt, role: Role) -> None:
    past = attempt.status.replicas.get(role.name, ReplicaStatus())
    attempt.status.replicas[role.name] = ReplicaStatus(restarts=past.restarts)


def _by_index(found: Sequence[Manifest], attempt: Attempt, role: Role) -> Mapping[int, Sequence[Manifest]]:
    """Return the objects by replica index.

    The result contains the required indexes and all other indexes with an object. Upstream, it contains all
    indexes up to the highest one with an object, and at least one index.
    """
    taken: dict[int, list[Manifest]] = {}
    for each in found:
        at = index(each)
        if at is not None:
            taken.setdefault(at, []).append(each)
    if attempt.deviations.only_wanted_pods:
        places = sorted({*range(role.replicas), *taken})
    else:
        places = list(range(max(role.replicas, 1 + max(taken, default=0))))
    return {place: taken.get(place, ()) for place in places}


def _create_pod(attempt: Attempt, role: Role, at: int) -> None:
    if text(section(role.template, "spec"), "restartPolicy"):
        said = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        attempt.tell(events.WARNING, "SetPodTemplateRestartPolicy", said)
    attempt.actions.append(CreatePod(objects.pod(attempt.job, role, at, attempt.deviations)))


def _reconcile_pod(attempt: Attempt, role: Role, at: int, pod: Manifest) -> None:
    if at >= role.replicas:
        attempt.delete_pod(pod)
        if attempt.deviations.only_wanted_pods:
            return
    if attempt.is_left_behind(pod):
        return
    for code in under_way.exit_codes(pod):
        said = f"Pod: {attempt.job.namespace}.{name(pod)} exited with code {code}"
        attempt.tell(events.NORMAL, "ExitedWithCode", said)
    if phase(pod) == "Failed":
        _reconcile_failed(attempt, role, pod)
    _count(attempt, role, pod)


def _reconcile_failed(attempt: Attempt, role: Role, pod: Manifest) -> None:
    job = attempt.job.name
    if is_made_anew(role, pod):
        if attempt.delete_pod(pod) and attempt.deviations.recreations_count:
            found = Recreation(role.name, 1 + under_way.restarts(pod))
            attempt.recreated[name(pod)] = found
            attempt.status.count(role.name, restarts=found.restarts)
        said = f"job {job} is restarting because {role.name} replica(s) failed."
        attempt.tell(events.WARNING, reason(RESTARTING), said)
        attempt.status.say(RESTARTING, said)
    elif role.restart_policy == EXIT_CODE:
        said = f'job "{job}" is failing because "{role.name}" replica(s) failed.'
        attempt.tell(events.WARNING, reason(FAILED), said)
        attempt.status.say(FAILED, said)
        if attempt.deviations.completion_is_timed:
            attempt.status.complete()


def _count(attempt: Attempt, role: Role, pod: Manifest) -> None:
    """Count a pod by its phase. A running pod that is being deleted counts as failed, as in the operator."""
    match phase(pod):
        case "Running" if is_terminating(pod):
            attempt.status.count(role.name, failed=1)
        case "Running":
            attempt.status.count(role.name, active=1)
        case "Succeeded":
            attempt.status.count(role.name, succeeded=1)
        case "Failed":
            attempt.status.count(role.name, failed=1)
        case _:
            pass

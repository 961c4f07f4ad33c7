"""Properties of the pods of a job's replicas."""

from backend_plugin.core.dialects.table import CREATION_FAILURES, INITIALIZERS
from backend_plugin.core.observed import Job, Observed, Pod, is_replica
from backend_plugin.core.scheduling import registry


def list_replica_pods(observed: Observed) -> tuple[Pod, ...]:
    """Return the pods of the job's replicas in order, without unrelated and placeholder pods."""
    job = observed.job
    own = [
        pod
        for pod in observed.pods
        if pod.role
        and (job is None or is_replica(pod, job))
        and (pod.phase == "Failed" or pod.role not in INITIALIZERS)
    ]
    return tuple(sorted(own, key=lambda pod: (pod.role, pod.index, pod.name)))


def is_ready(pod: Pod) -> bool:
    """True if the pod runs and is ready, as far as the cluster reports it."""
    return pod.phase == "Running" and pod.deleted is None and (pod.ready is None or pod.ready.true)


def is_replacement(pod: Pod, job: Job) -> bool:
    """True if the pod was created after all replicas had run, to replace a failed or deleted pod."""
    return job.started is not None and pod.created is not None and pod.created > job.started


def has_never_run(pod: Pod, job: Job) -> bool:
    """True if the pod is of the first set and has never run; False if a missing time leaves that open."""
    if pod.deleted is not None or pod.created is None or job.started is None:
        return False
    return not any(container.has_started for container in pod.containers)


def has_been_held(observed: Observed, pods: tuple[Pod, ...]) -> bool:
    """True if a scheduler, a placeholder or a quota shows that the job has been scheduled or held back."""
    return (
        any(group.phase or group.conditions for group in observed.pod_groups)
        # A placeholder is placed before its replica.
        or any(pod.scheduled is not None for pod in pods)
        or any(pod.scheduled is not None for pod in observed.pods if pod.place)
        # A placeholder is deleted before its replica is bound.
        or any(registry.is_placeholder_name(event.name) for event in observed.events)
        or any(event.warning and event.reason in CREATION_FAILURES for event in observed.events)
    )

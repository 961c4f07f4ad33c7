"""Properties of the pods of a job's replicas."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Final

from backend_plugin.core.dialects.table import CREATION_FAILURES, INITIALIZERS
from backend_plugin.core.observed import Job, Observed, Pod, is_replica
from backend_plugin.core.scheduling import registry

CREATION: Final = timedelta(seconds=5)
"""The longest time from the start time of a resumed job to the creation of its last pod."""
_RESUMED: Final = 2
"""The generation of a job that was created suspended, and whose spec has then changed once."""


def list_replica_pods(observed: Observed) -> tuple[Pod, ...]:
    """Return the pods of the replicas and the failed pods of initializers, sorted by role and index."""
    job = observed.job
    own = [
        pod
        for pod in observed.pods
        if pod.role
        and (job is None or is_replica(pod, job))
        and (pod.phase == "Failed" or pod.role not in INITIALIZERS)
    ]
    return tuple(sorted(own, key=attrgetter("role", "index", "name")))


def count_ready(pods: Iterable[Pod]) -> int:
    """Return the number of running pods that are ready, or whose readiness the cluster does not report."""
    ready = [
        pod
        for pod in pods
        if pod.phase == "Running" and pod.deleted is None and (pod.ready is None or pod.ready.true)
    ]
    return len(ready)


def list_replaced(pods: Iterable[Pod], job: Job) -> tuple[str, ...]:
    """Return the replicas whose pod is a replacement, created after every replica had once had a pod."""
    full = job.started
    if full is None:
        return ()
    return tuple([pod.replica for pod in pods if pod.created is not None and pod.created > full])


def has_never_run(pod: Pod) -> bool:
    """True if a pending pod has never run; False if it is being deleted or has no creation time."""
    if pod.phase not in ("Pending", "") or pod.deleted is not None or pod.created is None:
        return False
    return not any(container.has_started for container in pod.containers)


def has_been_held(observed: Observed, pods: tuple[Pod, ...]) -> bool:
    """True if a scheduler may have delayed the job, or if the creation of a pod or service has failed."""
    return (
        any(pod.scheduled is not None for pod in pods)
        or any(group.phase or group.conditions for group in observed.pod_groups)
        # A placeholder is placed before its replica.
        or any(pod.scheduled is not None for pod in observed.pods if pod.place)
        # A placeholder is deleted before its replica is bound.
        or any(registry.is_placeholder_name(event.name) for event in observed.events)
        or any(event.warning and event.reason in CREATION_FAILURES for event in observed.events)
    )


def is_first_admission(job: Job, pods: Sequence[Pod]) -> bool:
    """True if the job was created suspended and then resumed once, and no pod was replaced after that."""
    if job.started is None or job.generation != _RESUMED:
        return False
    return all(pod.created is not None and pod.created - job.started <= CREATION for pod in pods)

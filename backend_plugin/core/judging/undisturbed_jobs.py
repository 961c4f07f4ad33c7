"""Detection of jobs that need no cleanup, because all their replicas run and none is deleted or disrupted."""

from collections.abc import Sequence

from backend_plugin.core.cleanup import is_finished
from backend_plugin.core.judging.verdict_annotation import ANNOTATION
from backend_plugin.core.observed import Job, Observed, Pod, is_replica


def is_running_undisturbed(observed: Observed) -> bool:
    """True if a job is active, all its replicas run, and none of them is deleted or disrupted.

    False if an annotation of the job stores a failure. While the result is True, changes such as those of a
    pod's readiness require no action of `core.cleanup`.
    """
    job = observed.job
    if job is None or is_finished(observed) or ANNOTATION in job.annotations:
        return False
    replicas = [pod for pod in observed.pods if is_replica(pod, job)]
    return len(replicas) == job.replicas and all(map(_is_pod_running, replicas))


def is_still_undisturbed(job: Job, before: Sequence[Pod], pods: Sequence[Pod]) -> bool:
    """True if all replicas of a job still run undisturbed; checks only the pods that differ from `before`.

    `is_running_undisturbed` must have returned True for the pods `before`. If the result of this function is
    False, the caller must call `is_running_undisturbed` again.
    """
    if len(pods) != len(before):
        return False
    for old, pod in zip(before, pods, strict=True):
        if pod is not old and not (_is_pod_running(pod) and is_replica(pod, job) and is_replica(old, job)):
            return False
    return True


def _is_pod_running(pod: Pod) -> bool:
    # A plain loop is fastest, and this runs for each change of a pod.
    for container in pod.containers:
        if container.running_since is None:
            return False
    return pod.phase == "Running" and pod.deleted is None and pod.disrupted is None

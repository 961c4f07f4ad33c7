"""Compares the companion objects of a job, such as its PodGroup, with those that exist."""

from typing import Final

from backend_plugin.core.cleanup import ACTIVE_PHASES
from backend_plugin.core.judging.verdict_annotation import find_ending_verdict
from backend_plugin.core.observed import Job, Observed
from backend_plugin.core.reading import get_text
from backend_plugin.core.scheduling import companions
from backend_plugin.core.values import Manifest

# The phases of a pod group that holds resources. Co-scheduling retries a waiting gang when a PodGroup
# changes, not when a pod ends.
_COUNTING: Final = frozenset({"Scheduling", "Running"})


def is_over(job: Job) -> bool:
    """True if the job has ended, or if this server has ended it by a suspension, which sets no condition."""
    return job.end_condition is not None or find_ending_verdict(job) is not None


def find_leftover_companions(observed: Observed) -> tuple[Manifest, ...]:
    """Return the companion objects, such as a PodGroup, to delete after the end of a job.

    Some schedulers reserve resources for these objects. Their deletion makes the scheduler retry waiting
    gangs, so it must follow the end of all pods. The phase of the pod group does not show this end: it is
    `Failed` from the first failure on.
    """
    job = observed.job
    if job is None or job.deleting or not is_over(job):
        return ()
    has_active_pod = any(pod.phase in ACTIVE_PHASES for pod in observed.pods)
    if has_active_pod or any(group.phase in _COUNTING for group in observed.pod_groups):
        return ()
    existing = {group.kind for group in observed.pod_groups if not group.foreign}
    return tuple(each for each in companions.read_companions(job) if get_text(each, "kind") in existing)


def is_missing_companions(observed: Observed) -> bool:
    """True if an active job lacks a companion object, such as its PodGroup, that this server can create."""
    job = observed.job
    if job is None or job.deleting or is_over(job):
        return False
    if any(group.foreign for group in observed.pod_groups):  # The name is taken, so creation would fail.
        return False
    existing = {group.kind for group in observed.pod_groups}
    return any(get_text(each, "kind") not in existing for each in companions.read_companions(job))

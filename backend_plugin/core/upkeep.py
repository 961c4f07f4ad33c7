"""What is left to do for a job that has ended, or that is to end: nobody else stops it.

Lives here: which edits and deletions a verdict asks for, and the verdict as the job keeps it. Does not:
asking the cluster, which `shell.keeper` does. Flyte sends no Delete after a failure without retries.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from backend_plugin.core.kept_verdict import ANNOTATION, encode, read
from backend_plugin.core.manifest.pytorchjob import CLEAN_POD_POLICY
from backend_plugin.core.observed import Job, Observed, Pod, is_replica
from backend_plugin.core.reading import text
from backend_plugin.core.scheduling import companions
from backend_plugin.core.task_phase import TaskPhase, failed
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

# Flyte has asked by then, however long it was away for.
_TOLD: Final = timedelta(hours=1)
LINGER: Final = timedelta(seconds=30)
"""How long pods may still run after their job has succeeded.

The operator counts an elastic job as succeeded when its first worker ends; another may still write outputs.
"""


class Duties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to ask of the cluster; nothing, mostly."""

    patch: Manifest | None = None
    """An edit of the job that has it say why it failed, and ends it where it goes on."""
    pods: tuple[Pod, ...] = ()
    """Pods that nobody else would stop; to be deleted after the edit."""
    delete: bool = False
    """Whether the job itself is to go: it never ran, so its operator will not end it."""

    def __bool__(self) -> bool:
        return self.patch is not None or bool(self.pods) or self.delete


NONE: Final = Duties()


def duties(observed: Observed, verdict: TaskPhase, now: datetime) -> Duties:
    """The edits and deletions that a verdict asks for; nothing where all is done already."""
    job = observed.job
    if job is None or job.deleting or not verdict.phase.is_terminal:
        return NONE
    # An edit that has been made shows in the annotation.
    is_new = verdict.phase.is_failure and ANNOTATION not in job.annotations
    if job.end is not None:
        left = _select_leftovers(job, observed.pods, is_failure=verdict.phase.is_failure, now=now)
        patch = _kept(verdict, now) if is_new else None
        return Duties(patch=patch, pods=left)
    if is_new:
        return Duties(patch=_end(job, verdict, now))
    return Duties(delete=True) if _is_left_over(job, now) else NONE


def _beside(observed: Observed) -> tuple[Manifest, ...]:
    """The companions of a job that are there."""
    if observed.job is None or companions.ANNOTATION not in observed.job.annotations:
        return ()
    there = {group.kind for group in observed.pod_groups if not group.foreign}
    return tuple(each for each in companions.of(observed.job) if text(each, "kind") in there)


# Co-scheduling retries a waiting gang when a PodGroup is created or updated, not when a pod ends.
_COUNTING: Final = frozenset({"Scheduling", "Running"})


def companions_left(observed: Observed) -> tuple[Manifest, ...]:
    """Return the objects to delete after the end of a job, for which some schedulers would reserve resources.

    The deletion wakes the gangs that wait. So it has to come after the pods have freed their resources. The
    phase of the group does not show that: it is `Failed` from the first failure on, while other pods run.
    """
    job = observed.job
    if job is None or job.end is None or job.deleting:
        return ()
    holds = any(pod.phase in _ACTIVE for pod in observed.pods)
    counted = any(group.phase in _COUNTING for group in observed.pod_groups)
    return () if holds or counted else _beside(observed)


def lacks_companions(observed: Observed) -> bool:
    """Whether a job that goes on is without what was to stand beside it."""
    job = observed.job
    if job is None or companions.ANNOTATION not in job.annotations or is_over(observed):
        return False
    if any(group.foreign for group in observed.pod_groups):  # Nothing can be made under its name.
        return False
    return len(_beside(observed)) < len(companions.of(job))


def cancel(observed: Observed, reason: str, now: datetime) -> Duties:
    """What ends a job because a person wants it to; nothing where it is over, or is ended already."""
    if is_over(observed):
        return NONE
    said = f": {reason}" if reason else ""
    message = f"cancelled by a person, with `kfpytorch cancel`{said}"
    return duties(observed, failed(Cause.USER_ERROR, "Cancelled", message), now)


def _is_left_over(job: Job, now: datetime) -> bool:
    """Whether it was given up before it had pods, and everybody has heard of it."""
    kept = read(job.annotations.get(ANNOTATION, ""))
    return job.started is None and kept is not None and now - kept.at > _TOLD


_ACTIVE: Final = frozenset({"Pending", "Running"})


def has_active_pods(job: Job, pods: Sequence[Pod]) -> bool:
    """True if the job has ended and one of its pods still holds resources, or may take some."""
    return job.end is not None and any(pod.phase in _ACTIVE and pod.deleted is None for pod in pods)


def _select_leftovers(job: Job, pods: Sequence[Pod], *, is_failure: bool, now: datetime) -> tuple[Pod, ...]:
    """Return the pods to delete after the end of a job, which the operator leaves.

    Active pods keep their GPUs, and pending ones take some later. So both are deleted at every end, whatever
    the clean pod policy is. The policy decides only about finished pods, whose logs people may read.
    """
    ended = job.completed or (job.end.since if job.end is not None else None)
    may_run = not is_failure and ended is not None and now - ended < LINGER
    removes_all = job.annotations.get(CLEAN_POD_POLICY) == "All"
    return tuple(
        pod
        for pod in pods
        if pod.deleted is None
        and _is_owned(pod, job)
        and (removes_all if pod.phase not in _ACTIVE else not may_run or pod.phase == "Pending")
    )


def _is_owned(pod: Pod, job: Job) -> bool:
    """True if the pod is a replica of the job, or a placeholder, which another pod owns."""
    return bool(pod.place) or is_replica(pod, job)


def is_over(observed: Observed) -> bool:
    """Whether a job has ended, or is about to be gone: what it has left is all that there will be."""
    job = observed.job
    return job is None or job.deleting or job.end is not None


def runs_undisturbed(observed: Observed) -> bool:
    """Whether every replica that a job asks for runs, nothing tells of an end, and nobody has ordered one.

    What changes of such a job, as the node or the readiness of a pod, asks for nothing to be done.
    """
    job = observed.job
    if job is None or is_over(observed) or ANNOTATION in job.annotations:
        return False
    replicas = [pod for pod in observed.pods if is_replica(pod, job)]
    return len(replicas) == job.replicas and all(map(_runs, replicas))


def goes_on_undisturbed(job: Job, before: Sequence[Pod], pods: Sequence[Pod]) -> bool:
    """Whether `runs_undisturbed` of a job that did so with the pods `before`; looks at what is new of them.

    May be False of one that does: then all of it is to be looked at.
    """
    if len(pods) != len(before):
        return False
    for old, pod in zip(before, pods, strict=True):
        if pod is not old and not (_runs(pod) and is_replica(pod, job) and is_replica(old, job)):
            return False
    return True


def _runs(pod: Pod) -> bool:
    # Step by step, for it is asked of every change of a pod.
    for container in pod.containers:
        if container.running_since is None:
            return False
    return pod.phase == "Running" and pod.deleted is None and pod.disrupted is None


def _kept(verdict: TaskPhase, now: datetime) -> Manifest:
    """The verdict stays what it is when the pods that it was read off are gone."""
    return {"metadata": {"annotations": {ANNOTATION: encode(verdict, now)}}}


def _end(job: Job, verdict: TaskPhase, now: datetime) -> Manifest:
    """By its deadline a job that has its pods ends for good; one without is held back from making them."""
    policy: Manifest = (
        {"suspend": True}
        if job.started is None
        else {"activeDeadlineSeconds": 1, "cleanPodPolicy": "Running", "suspend": False}
    )
    return {**_kept(verdict, now), "spec": {"runPolicy": policy}}

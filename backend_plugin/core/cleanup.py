"""The edits and deletions that a job requires once its Flyte phase is terminal.

The server makes these changes itself, because Flyte sends no Delete request after a failure without retries.
The module also finds the companion objects, such as a PodGroup, that an active job lacks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.judging import verdict_annotation
from backend_plugin.core.judging.timeouts import is_exceeded
from backend_plugin.core.judging.verdict import Verdict, build_failure
from backend_plugin.core.names import CLEAN_POD_POLICY
from backend_plugin.core.observed import Job, Observed, Pod, PodGroup, get_end_time, is_replica
from backend_plugin.core.reading import get_text
from backend_plugin.core.scheduling import companions, registry
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

# The time within which Flyte receives a verdict, even if there is an outage.
_DELIVERY_TIME: Final = timedelta(hours=1)
CANCELLED: Final = "Cancelled"
"""The reason of the verdict on a job that a user has cancelled."""
# The time in which a cancelled job can end after its pods are stopped; then the server ends the job.
_STOP_TIMEOUT: Final = timedelta(minutes=2)
LINGER: Final = timedelta(seconds=30)
"""The time that pods may still run after their job has succeeded.

training-operator marks an elastic job as succeeded when its first worker ends; other workers may still write.
"""
_ACTIVE_PHASES: Final = frozenset({"Pending", "Running"})
# The phases of a pod group that holds resources. Co-scheduling retries a waiting gang when a PodGroup
# changes, not when a pod ends.
_COUNTING: Final = frozenset({"Scheduling", "Running"})


class CleanupActions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The requests to the API server that a job requires after its phase became terminal; usually none."""

    patch: Manifest | None = None
    """A patch that stores the verdict on the job and, if the job has not ended, ends it."""
    pods: tuple[Pod, ...] = ()
    """Pods to delete after the patch, because the operator does not stop them."""
    stops: tuple[Pod, ...] = ()
    """Running pods of a cancelled job to stop without a deletion, so that users can read their logs."""
    groups: tuple[PodGroup, ...] = ()
    """Pod groups to deactivate before the job is suspended, because their queue would resume the job."""
    ends: bool = False
    """True if the job must be ended with `Dialect.end_spec`, because its operator would continue the job."""
    delete: bool = False
    """True if the job must be deleted: it failed before it had all pods, or its time to live is over."""

    def __bool__(self) -> bool:
        return self != NONE


NONE: Final = CleanupActions()


def plan_cleanup(observed: Observed, verdict: Verdict, now: datetime) -> CleanupActions:
    """Return the edits and deletions that the job still requires; `NONE` if its phase is not terminal."""
    job = observed.job
    if job is None or job.deleting or not verdict.phase.is_terminal:
        return NONE
    if is_expired(job, now):
        return CleanupActions(delete=True)
    plan = _plan_for_active_job if job.end_condition is None else _plan_for_ended_job
    return plan(job, observed, verdict, now)


def _plan_for_ended_job(job: Job, observed: Observed, verdict: Verdict, now: datetime) -> CleanupActions:
    patch = _build_verdict_patch(verdict, now) if _is_unrecorded(job, verdict) else None
    if job.unfinished:
        # Do not delete pods: the operator would create them again. The suspension of the job deletes them.
        groups = _select_active_groups(job, observed.pod_groups)
        return CleanupActions(patch=patch, groups=groups, ends=not job.ending)
    left = _select_leftover_pods(job, observed.pods, is_failure=verdict.phase.is_failure, now=now)
    # The first pod that ends also ends the job; the others still write their logs.
    stops = _select_running_pods(job, left) if _is_cancelling(job, verdict, now) else ()
    return CleanupActions(patch=patch, pods=tuple(pod for pod in left if pod not in stops), stops=stops)


def _plan_for_active_job(job: Job, observed: Observed, verdict: Verdict, now: datetime) -> CleanupActions:
    if _is_unrecorded(job, verdict):
        return _plan_end(job, observed, verdict, now)
    if _is_cancelling(job, verdict, now):
        return CleanupActions(stops=_select_running_pods(job, observed.pods))
    groups = _select_active_groups(job, observed.pod_groups)
    # `kfpytorch cancel` only suspends the job, and the queue may have resumed a suspended job.
    if verdict.phase.is_failure and (groups or not job.ending):
        return CleanupActions(groups=groups, ends=not job.ending)
    return CleanupActions(delete=True) if _is_leftover_job(job, now) else NONE


def _plan_end(job: Job, observed: Observed, verdict: Verdict, now: datetime) -> CleanupActions:
    patch = _build_verdict_patch(verdict, now)
    dialect = get_dialect(job.dialect)
    stop = dialect.build_stop_spec(job)
    if verdict.reason == CANCELLED and stop is not None and _can_keep_logs(job, observed.pods):
        return CleanupActions(patch={**patch, "spec": stop} if stop else patch)
    # A suspension is sufficient for a job without pods.
    spec = dialect.suspend_spec if job.started is None else dialect.end_spec
    groups = _select_active_groups(job, observed.pod_groups)
    return CleanupActions(patch={**patch, "spec": spec}, groups=groups)


def _is_unrecorded(job: Job, verdict: Verdict) -> bool:
    return verdict.phase.is_failure and verdict_annotation.ANNOTATION not in job.annotations


def build_cancellation(reason: str) -> Verdict:
    """Return the verdict on a job that a user cancels: a failure without retry, with the user's `reason`."""
    suffix = f": {reason}" if reason else ""
    return build_failure(Cause.USER_ERROR, CANCELLED, f"cancelled by a user, with `kfpytorch cancel`{suffix}")


def plan_cancellation(observed: Observed, reason: str, now: datetime) -> CleanupActions:
    """Return the actions that cancel a job; `NONE` if it has ended, is being deleted or does not exist.

    `reason` is the text that the user gives for the cancellation.
    """
    return NONE if is_finished(observed) else plan_cleanup(observed, build_cancellation(reason), now)


def is_expired(job: Job, now: datetime) -> bool:
    """True if this server must delete the job, because the time to live after its end is over."""
    if job.ttl is None:
        return False
    end, recorded = job.end_condition, verdict_annotation.find_recorded_verdict(job)
    ended = end.since if end is not None else recorded.at if recorded is not None else None
    # Keep the job for at least `LINGER`, because Flyte can read the phase only while the job exists.
    return is_exceeded(max(job.ttl, LINGER), ended, now)


def _select_active_groups(job: Job, groups: Sequence[PodGroup]) -> tuple[PodGroup, ...]:
    """Return the pod groups to deactivate before a suspension, because their queue would resume the job."""
    if not get_dialect(job.dialect).ends_by_suspension:
        return ()
    return tuple(
        group
        for group in groups
        if not group.foreign and group.active and registry.get_deactivation(group) is not None
    )


def _is_leftover_job(job: Job, now: datetime) -> bool:
    """True if a job failed before it had all its pods, and Flyte has received its failure."""
    # A job that was ended by a suspension may have run, although it has no start time.
    if job.started is not None or get_dialect(job.dialect).ends_by_suspension:
        return False
    recorded = verdict_annotation.find_recorded_verdict(job)
    return recorded is not None and now - recorded.at > _DELIVERY_TIME


def has_active_pods(job: Job, pods: Sequence[Pod]) -> bool:
    """True if the job has ended and one of its pods is running or pending."""
    return job.end_condition is not None and any(
        pod.phase in _ACTIVE_PHASES and pod.deleted is None for pod in pods
    )


def _select_leftover_pods(
    job: Job, pods: Sequence[Pod], *, is_failure: bool, now: datetime
) -> tuple[Pod, ...]:
    """Return the pods of an ended job that this server deletes: replicas and placeholder pods.

    For every clean pod policy, pending and running pods are deleted, because they may get or hold GPUs. But
    after a success, running pods get the time `LINGER` to end. Finished pods, whose logs users may read, are
    deleted only if the policy is ``All``.
    """
    may_run = not is_failure and _has_just_ended(job, now)
    removes_finished = job.annotations.get(CLEAN_POD_POLICY) == "All"
    removes = {"Pending": True, "Running": not may_run}
    return tuple(
        pod
        for pod in pods
        if pod.deleted is None
        and (pod.place or is_replica(pod, job))
        and removes.get(pod.phase, removes_finished)
    )


def _has_just_ended(job: Job, now: datetime) -> bool:
    ended = get_end_time(job, job.end_condition)
    return ended is not None and now - ended < LINGER


def _can_keep_logs(job: Job, pods: Sequence[Pod]) -> bool:
    removes_all = "All" in (job.annotations.get(CLEAN_POD_POLICY), job.clean_pod_policy)
    return job.started is not None and not removes_all and bool(_select_running_pods(job, pods))


def _is_cancelling(job: Job, verdict: Verdict, now: datetime) -> bool:
    """True if a cancelled job keeps its pods for their logs, and its processes may still take time to end."""
    if verdict.reason != CANCELLED or job.started is None or job.ending or job.clean_pod_policy != "None":
        return False
    return _is_recorded_recently(job, now) and get_dialect(job.dialect).build_stop_spec(job) is not None


def _is_recorded_recently(job: Job, now: datetime) -> bool:
    recorded = verdict_annotation.find_recorded_verdict(job)
    return recorded is not None and now - recorded.at <= _STOP_TIMEOUT


def _select_running_pods(job: Job, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    return tuple(
        pod for pod in pods if pod.phase == "Running" and pod.deleted is None and is_replica(pod, job)
    )


def is_finished(observed: Observed) -> bool:
    """True if a job has ended, is being deleted or does not exist."""
    job = observed.job
    return job is None or job.deleting or job.end_condition is not None


def _build_verdict_patch(verdict: Verdict, now: datetime) -> Manifest:
    # Store the verdict: the pods that show the failure may be deleted, and then it cannot be derived again.
    return {
        "metadata": {"annotations": {verdict_annotation.ANNOTATION: verdict_annotation.encode(verdict, now)}}
    }


def _is_over(job: Job) -> bool:
    """True if the job has ended, or if this server has ended it by a suspension, which sets no condition."""
    return job.end_condition is not None or verdict_annotation.find_ending_verdict(job) is not None


def is_active(job: Job) -> bool:
    """True if the job has not ended, and is not being deleted."""
    return not job.deleting and not _is_over(job)


def find_leftover_companions(observed: Observed) -> tuple[Manifest, ...]:
    """Return the companion objects, such as a PodGroup, to delete after the end of a job.

    Some schedulers reserve resources for these objects, and retry waiting gangs when an object is deleted. So
    the objects are deleted only after all pods have ended. The phase of a pod group does not show that its
    pods have ended: the phase is `Failed` from the first failure on.
    """
    job = observed.job
    if job is None or job.deleting or not _is_over(job) or _holds_resources(observed):
        return ()
    return tuple(each for each in companions.read_companions(job) if _exists(each, observed.pod_groups))


def _holds_resources(observed: Observed) -> bool:
    has_active_pod = any(pod.phase in _ACTIVE_PHASES for pod in observed.pods)
    return has_active_pod or any(group.phase in _COUNTING for group in observed.pod_groups)


def _exists(companion: Manifest, groups: Sequence[PodGroup]) -> bool:
    return any(group.kind == get_text(companion, "kind") and not group.foreign for group in groups)


def is_missing_companions(observed: Observed) -> bool:
    """True if an active job lacks a companion object, such as its PodGroup, that this server can create."""
    job = observed.job
    if job is None or not is_active(job):
        return False
    if any(group.foreign for group in observed.pod_groups):  # The name is taken, so creation would fail.
        return False
    return not all(_exists(each, observed.pod_groups) for each in companions.read_companions(job))

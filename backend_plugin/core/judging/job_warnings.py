"""Derives the warnings about a job, such as a scheduler or a pod group that is missing."""

from collections.abc import Sequence
from typing import Final

from backend_plugin.core import job_conditions
from backend_plugin.core.judging.pending import JobWarning
from backend_plugin.core.observed import Job, Observed, Pod
from backend_plugin.core.scheduling.gang_annotation import GangSummary
from backend_plugin.core.scheduling.registry import STATUS_PARSERS, is_controller_managed


def list_warnings(
    observed: Observed, job: Job, pods: Sequence[Pod], gang: GangSummary
) -> tuple[JobWarning, ...]:
    """Return the warnings about a job that has not ended; `pods` are the pods of its replicas."""
    foreign = [
        JobWarning(
            text=f"a {group.kind} {group.name} existed before the job and does not belong to it, so the"
            " job can have no group; delete the existing one, or start another attempt"
        )
        for group in observed.pod_groups
        if group.foreign
    ]
    derived = (
        _check_scheduler(observed, pods, gang),
        _check_group_creation(observed, job, gang),
        _check_host(job, pods),
        _check_places(observed, job, pods, gang),
    )
    return (*list_scheduler_warnings(observed), *foreign, *filter(None, derived))


def list_scheduler_warnings(observed: Observed) -> list[JobWarning]:
    """Return the warnings that schedulers and queues report."""
    return [note for parser in STATUS_PARSERS for note in parser.notes(observed)]


IN_PART: Final = (
    "Kueue gives the job quota, not nodes: some replicas may start and hold GPUs while the others find no"
    " node; to start all together, set kfpytorch.gang.scheduler to a gang scheduler, and local-queue to this"
    " queue"
)
_GANG: Final = 2
"""The smallest number of replicas that can block each other."""


def _check_places(observed: Observed, job: Job, pods: Sequence[Pod], gang: GangSummary) -> JobWarning | None:
    """Return a warning if Kueue alone admits a new job, and no gang scheduler schedules its pods."""
    if not _has_only_queue(observed, gang):
        return None
    has_run = any(condition.type == job_conditions.RUNNING for condition in job.conditions)
    if has_run or max(_GANG, sum(pod.is_bound for pod in pods) + 1) > job.replicas:
        return None
    return JobWarning(text=IN_PART)


def _has_only_queue(observed: Observed, gang: GangSummary) -> bool:
    is_alone = bool(gang.queue) and not (gang.scheduler_name or gang.by_operator)
    return is_alone and {group.kind for group in observed.pod_groups} == {"Workload"}


def _check_host(job: Job, pods: Sequence[Pod]) -> JobWarning | None:
    """Return a warning if some replicas of an elastic job have nodes, but the rendezvous host has none."""
    # The first replica hosts the rendezvous: the master, or else the first worker or node.
    role = job.groups[0].role if job.elastic and job.groups else ""
    if role == "master" or not _is_waited_for(f"{role}-0", pods):
        return None
    return JobWarning(
        text=f"{role}-0 hosts the rendezvous and has no node: the {role}s that have nodes wait for it; set"
        f" min_member of the gang to the largest number of nodes to start all {role}s together"
    )


def _is_waited_for(host: str, pods: Sequence[Pod]) -> bool:
    is_waiting = any(_is_waiting(pod) for pod in pods if pod.replica == host)
    return is_waiting and any(pod.is_bound for pod in pods)


def _is_waiting(pod: Pod) -> bool:
    return pod.phase == "Pending" and not pod.is_bound and pod.deleted is None


def _check_scheduler(observed: Observed, pods: Sequence[Pod], gang: GangSummary) -> JobWarning | None:
    """Return a warning if no scheduler has reported anything about the pending pods or their pod group."""
    waiting = list(filter(_is_waiting, pods))
    if not waiting or _has_pod_status(observed, waiting) or _has_scheduler_status(observed):
        return None
    named = f"a scheduler called {gang.scheduler_name}"
    name = named if gang.scheduler_name else "one with the schedulerName of these pods"
    return JobWarning(
        text=f"no scheduler has reported anything about its pods: is there {name}, and does it run?",
        since=max(filter(None, [pod.created for pod in waiting]), default=None),
    )


def _has_pod_status(observed: Observed, waiting: Sequence[Pod]) -> bool:
    """True if a condition, an event or a placeholder pod shows that a scheduler has handled the pods."""
    unscheduled = {("Pod", pod.name) for pod in waiting if pod.scheduled is None}
    if len(unscheduled) < len(waiting) or any(not pod.role for pod in observed.pods):
        return True
    return any((event.kind, event.name) in unscheduled for event in observed.events)


def _has_scheduler_status(observed: Observed) -> bool:
    """True if a scheduler has written a status or an event of the pod group."""
    groups = [group for group in observed.pod_groups if group.kind == "PodGroup" and not group.foreign]
    written = [group for group in groups if not is_controller_managed(group)]
    # An event does not contain the API group of its PodGroup.
    has_event = len(written) == len(groups) and any(event.kind == "PodGroup" for event in observed.events)
    return has_event or any(group.phase or group.conditions or group.limits for group in written)


def _check_group_creation(observed: Observed, job: Job, gang: GangSummary) -> JobWarning | None:
    """Return a warning if the operator has created neither pods nor a pod group, and only logs the reason."""
    if not gang.by_operator or job.started is not None or observed.pods or observed.pod_groups:
        return None
    if any(each.true and each.type == job_conditions.SUSPENDED for each in job.conditions):
        return None
    queue = f"; is there a queue {gang.queue}, and is it open?" if gang.queue else ""
    return JobWarning(
        text=f"its operator has created neither a PodGroup nor pods; only its log contains the reason{queue}",
        since=job.created,
    )

"""The adapter for Kueue, which admits a job when its queue has quota for all replicas.

Another scheduler places the pods. Kueue counts all replicas of an elastic job.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final

from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.judging import pending
from backend_plugin.core.observed import Condition, Job, Observed, PodGroup
from backend_plugin.core.scheduling import adapter
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.status_parser import StatusParser, parse_amount
from backend_plugin.core.values import omit_empty
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import add_quantities

_API: Final = "kueue.x-k8s.io"
_PREFIX: Final = f"{_API}/"
_QUEUE_LABEL: Final = f"{_PREFIX}queue-name"
_PRIORITY_LABEL: Final = f"{_PREFIX}priority-class"
# Older Kueue releases write the node selectors of a flavor into a field that Trainer 2.2 has removed.
_OLDEST: Final = {"TrainJob": (0, 17, 0)}


def _build_fields(gang: GangSpec) -> adapter.SchedulingFields:
    labels = {_QUEUE_LABEL: gang.queue, _PRIORITY_LABEL: gang.priority_class_name}
    return adapter.SchedulingFields(
        job_labels=omit_empty(labels),
        # Kueue's webhook sets this too. A job that the webhook missed waits instead of using resources
        # outside its quota.
        suspended=True,
    )


def _get_denial_reason(capabilities: Capabilities) -> str:
    if capabilities.suspends_jobs is False:
        return f"Kueue does not manage {DEFAULT.name}s on this cluster, which is its default since 0.19"
    return ""


# ---- status parser


_POD_SET: Final = re.compile(r"couldn't assign flavors to pod set ([\w.-]{1,63})")
_UNUSED: Final = re.compile(
    r"insufficient unused quota for ([\w./-]{1,253}) in flavor ([\w.-]{1,253}), (\S{1,40}) more needed"
)
_NEVER: Final = re.compile(
    r"insufficient quota for ([\w./-]{1,253}) in flavor ([\w.-]{1,253}), "
    r"previously considered podsets requests \((\S{1,40})\) \+ current podset request \((\S{1,40})\)"
    r" > maximum capacity \((\S{1,40})\)"
)
_UNCOVERED: Final = re.compile(r"resource ([\w./-]{1,253}) unavailable in ClusterQueue")
_MISSING: Final = re.compile(r"LocalQueue \S{1,253} doesn't exist")
_QUEUE: Final = re.compile(
    r"(?:LocalQueue|ClusterQueue) \S{1,253} "
    r"(doesn't exist|not found|is inactive|is stopped|is terminating or missing)"
)
_STOPPED: Final = (
    "the queue is stopped: it admits no job until an admin sets its stopPolicy to None; wait for that, or"
    " use another queue"
)
_WRONG: Final = (
    "it is not admitted until the task is corrected, or an admin corrects or resumes its queue: `kubectl"
    " describe localqueues,clusterqueues -n {namespace}` shows the state of the queue; or use another queue"
)
_SELECTOR_MISMATCH: Final = "namespace doesn't match ClusterQueue selector"
_PERMANENT: Final = {"ExceedsMaxQuota": "", "NoMatchingFlavor": _WRONG, "Misconfigured": _WRONG}
"""The reasons that prevent admission permanently, with their remedies; empty for the default remedy.

A reason counts only if the message of its condition cannot be parsed.
"""
_INACTIVATED: Final = (
    "it is not admitted again: an admin has to set spec.active of its Workload to true, or another attempt"
    " has to be started"
)
_NOT_EVICTED: Final = Condition(type="Evicted", true=False)


def _parse_message(message: str) -> pending.SchedulerMessage | None:
    shortages: dict[str, pending.ResourceShortage] = {}
    # The first part belongs to no pod set; the numbers of a later pod set include the pod sets before it.
    parts = ["", *_POD_SET.split(message)]
    for pod_set, text in zip(parts[::2], parts[1::2], strict=True):
        exceeded = list(_NEVER.finditer(text))
        # All resources of a pod set use the same flavor, so a flavor that can never provide one of them is
        # unusable.
        found = _find_smallest_shortages(pod_set, text, unusable={each[2] for each in exceeded})
        if exceeded and not found:
            return pending.SchedulerMessage(text=_format_exceeded_quota(exceeded[0]), never=True)
        shortages |= found
    if shortages:
        return pending.SchedulerMessage(shortages=tuple(dict(sorted(shortages.items())).values()))
    return _parse_queue_message(message)


def _parse_queue_message(message: str) -> pending.SchedulerMessage | None:
    if uncovered := _UNCOVERED.search(message):
        return pending.SchedulerMessage(
            text=f"can never be admitted: its queue has no quota for {uncovered[1]}", never=True
        )
    queue = _QUEUE.search(message)
    return pending.SchedulerMessage(text=queue[0]) if queue is not None else None


def _format_exceeded_quota(match: re.Match[str]) -> str:
    resource = match[1]
    before, own = parse_amount(resource, match[3]), parse_amount(resource, match[4])
    amount = "more" if before is None or own is None else add_quantities([before, own]).text
    return f"can never be admitted: it requests {amount} {resource}, and the maximum is {match[5]}"


def _find_smallest_shortages(
    pod_set: str, text: str, unusable: Set[str]
) -> dict[str, pending.ResourceShortage]:
    """Return the smallest shortage of each resource over the usable flavors, because a job needs only one."""
    shortages: dict[str, pending.ResourceShortage] = {}
    for resource, flavor, more in _UNUSED.findall(text):
        if flavor in unusable:
            continue
        shortage = pending.ResourceShortage(
            resource=resource, missing=parse_amount(resource, more), last_role=pod_set, counts_all=True
        )
        other = shortages.setdefault(resource, shortage).missing
        if shortage.missing is not None and (other is None or shortage.missing < other):
            shortages[resource] = shortage
    return shortages


def _select_remedy(message: str) -> str:
    """Return the remedy if an admin has to correct the queue before it can admit the job; else empty."""
    queue = _QUEUE.search(message)
    if queue is None:
        return _WRONG if _SELECTOR_MISMATCH in message or _UNCOVERED.search(message) else ""
    if _MISSING.search(message):  # A missing LocalQueue is an error of the task.
        return ""
    return _STOPPED if queue[1] == "is stopped" else _WRONG


def _find_group_reason(group: PodGroup) -> pending.PendingReason | None:
    if group.kind != "Workload":
        return None
    met = {condition.type: condition for condition in group.conditions if condition.true}
    evicted = met.get("Evicted", _NOT_EVICTED)
    if not group.active and "Finished" not in met:
        return _build_inactive_reason(group, evicted)
    condition = _find_pending_condition(group, met)
    return None if condition is None else _build_pending_reason(group, condition, evicted)


def _build_inactive_reason(group: PodGroup, evicted: Condition) -> pending.PendingReason:
    return pending.PendingReason(
        stage=pending.PendingStage.HELD,
        cause=Cause.QUEUE,
        reason=evicted.reason or "Deactivated",
        text=evicted.message or "its Workload was deactivated",
        since=evicted.since,
        queue=group.queue,
        # An admin may activate the Workload again; Kueue does not.
        never=evicted.reason.startswith("DeactivatedDueTo"),
        remedy=_INACTIVATED,
        raw=evicted.message,
    )


def _build_pending_reason(group: PodGroup, condition: Condition, evicted: Condition) -> pending.PendingReason:
    message = condition.message
    remedy = _select_remedy(message)
    parsed = _parse_message(message)
    if parsed is None:
        parsed, remedy = _interpret_reason(condition, remedy)
    return pending.PendingReason(
        stage=pending.PendingStage.HELD,
        cause=Cause.INVALID_CONFIG if _MISSING.search(message) else Cause.QUEUE,
        reason=condition.reason or condition.type,
        text=parsed.text,
        again=_format_eviction(evicted),
        since=condition.since,
        shortages=parsed.shortages,
        queue=group.queue,
        # The queue position is meaningless if the queue admits no job.
        ahead=None if remedy or parsed.never else group.ahead,
        never=parsed.never,
        remedy=remedy.format(namespace=group.namespace),
        raw="; ".join(filter(None, (message, evicted.message))),
    )


def _interpret_reason(condition: Condition, remedy: str) -> tuple[pending.SchedulerMessage, str]:
    """Return the message of a condition and a remedy: `remedy`, or else the one for the condition's reason.

    If `remedy` is not empty, the reason is ignored: it describes only the worst of the queue's flavors.
    """
    is_permanent = condition.reason in _PERMANENT and not remedy
    parsed = pending.SchedulerMessage(text=condition.message or "not admitted yet", never=is_permanent)
    return parsed, _PERMANENT[condition.reason] if is_permanent else remedy


def _format_eviction(evicted: Condition) -> str:
    return f"admitted before and evicted ({evicted.reason or evicted.type}); " if evicted.true else ""


def _find_pending_condition(group: PodGroup, met: Mapping[str, Condition]) -> Condition | None:
    """Return the condition that shows that the Workload is not admitted; None if it is admitted."""
    unmet = {condition.type: condition for condition in group.conditions if not condition.true}
    reserved = met.get("QuotaReserved")
    if reserved is None:
        return unmet.get("QuotaReserved") or unmet.get("Admitted") or _build_queued_condition(group)
    # While admission checks are pending, only they have the reason.
    if "Admitted" not in met and (text := _format_unready_checks(group.checks)):
        return Condition(
            type="Admitted", true=False, reason="AdmissionCheck", message=text, since=reserved.since
        )
    return unmet.get("Admitted")


def _build_queued_condition(group: PodGroup) -> Condition | None:
    is_waiting = group.ahead and _is_queued(group)
    return Condition(type="QuotaReserved", true=False, since=group.created) if is_waiting else None


def _format_unready_checks(checks: Iterable[Condition]) -> str:
    texts = [f"{each.type}: {each.message or each.reason or 'Pending'}" for each in checks if not each.true]
    return f"its quota is reserved, and it waits for a check: {'; '.join(texts)}" if texts else ""


def _is_queued(group: PodGroup) -> bool:
    """True if the Workload waits in its queue. In a StrictFIFO queue, only the first may have a condition."""
    over = {each.type for each in group.conditions if each.true}
    return group.kind == "Workload" and group.active and not over & {"QuotaReserved", "Finished"}


def _iter_warnings(observed: Observed) -> Iterator[pending.JobWarning]:
    """Yield a warning if Kueue started a TrainJob without writing node selectors and tolerations into it."""
    job = observed.job
    if job is None or not _lacks_patch(job) or not any(map(_is_admitted, observed.pod_groups)):
        return
    lost = "; it has also removed the patch of the runtime that this task requires" if job.lost_patch else ""
    oldest = ".".join(map(str, _OLDEST[job.dialect]))
    yield pending.JobWarning(
        text="Kueue has not written the node selectors and tolerations of its flavor, so the pods may run on"
        f" other nodes{lost}; an admin has to install Kueue {oldest} or newer",
        event="QueueOutdated",
    )


def _lacks_patch(job: Job) -> bool:
    """True if the job is of a kind that Kueue patches, a TrainJob, and Kueue has not patched it."""
    if job.patch_managers is None or job.ending:
        return False
    return not any(manager.startswith(_PREFIX) for manager in job.patch_managers)


def _is_admitted(group: PodGroup) -> bool:
    admitted = any(each.type == "Admitted" and each.true for each in group.conditions)
    return group.kind == "Workload" and not group.foreign and admitted


ADAPTERS: Final = {
    "": adapter.SchedulerAdapter(
        marks=_build_fields,
        title="Kueue",
        groups=adapter.SchedulerResource(group=_API, plural="workloads", kind="Workload"),
        understands=frozenset({adapter.QUEUE}),
        keys=(_PREFIX,),
        denied=_get_denial_reason,
        queues=adapter.SchedulerResource(
            group=_API,
            plural="localqueues",
            kind="LocalQueue",
            is_namespaced=True,
            label=_QUEUE_LABEL,
            parent_field="clusterQueue",
            example="{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: NAME, "
            "namespace: NAMESPACE}, spec: {clusterQueue: PARENT}}",
        ),
        parent_queues=adapter.SchedulerResource(group=_API, plural="clusterqueues", kind="ClusterQueue"),
        priorities=adapter.SchedulerResource(
            group=_API,
            plural="workloadpriorityclasses",
            kind="WorkloadPriorityClass",
            label=_PRIORITY_LABEL,
            example="{apiVersion: kueue.x-k8s.io/v1beta1, kind: WorkloadPriorityClass, "
            "metadata: {name: NAME}, value: 1000}",
        ),
        program="kueue",
        oldest=_OLDEST,
        takes_singles=True,
        needs_queue=True,
        admits=True,
        counts_all=True,
        status_parser=StatusParser(
            api=_API,
            message=_parse_message,
            group=_find_group_reason,
            notes=_iter_warnings,
            queued=_is_queued,
            deactivation={"spec": {"active": False}},
        ),
    )
}

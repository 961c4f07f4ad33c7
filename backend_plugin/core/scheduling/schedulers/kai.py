"""The adapter for the KAI scheduler, which creates the pod group of a job itself.

Labels of the job specify its queue and priority. The scheduling policy of a PyTorchJob specifies the minimum
number of pods that KAI places together.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from backend_plugin.core.conditions import QueueLimit
from backend_plugin.core.judging import pending
from backend_plugin.core.observed import Observed, PodGroup
from backend_plugin.core.scheduling import adapter
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.status_parser import StatusParser, list_events, parse_amount
from backend_plugin.core.values import omit_empty
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import Quantity, subtract_quantity

_PREFIX: Final = "kai.scheduler/"
_API: Final = "scheduling.run.ai"


def _build_fields(gang: GangSpec) -> adapter.SchedulingFields:
    labels = {f"{_PREFIX}queue": gang.queue, "priorityClassName": gang.priority_class_name}
    return adapter.SchedulingFields(
        job_labels=omit_empty(labels),
        scheduling_policy={"minAvailable": gang.min_member},
        # KAI creates a subgroup for each replicated job, and the subgroup of an initializer stays empty.
        jobset_annotations={f"{_PREFIX}batch-min-member": "1"},
        scheduler_name=gang.scheduler_name,
    )


def _detect_queue(capabilities: Capabilities, queue: str) -> adapter.Detection | None:
    known = capabilities.queues.get("kai")
    if not capabilities.has_api(_API) or not queue or (known is not None and queue not in known):
        return None
    return adapter.Detection(
        rank=adapter.DetectionRank.QUEUE, why=f"the cluster has {_API}, and the queue is {queue}"
    )


# ---- status parser


_MISSING: Final = re.compile(
    r"Waiting for (\d{1,9}) pods for SubGroup ([\w.-]{1,63}), currently (\d{1,9}) exist"
)
_CAUSES: Final = {
    "QueueDoesNotExist": Cause.INVALID_CONFIG,
    **dict.fromkeys(("OverLimit", "NonPreemptibleOverQuota", "PreemptionDelayNotElapsed"), Cause.QUEUE),
}
"""The cause for each reason that KAI reports for a pod group that its queue does not admit."""


def _parse_message(message: str) -> pending.SchedulerMessage | None:
    match = _MISSING.search(message)
    return match and pending.SchedulerMessage(text=f"{match[3]} of the {match[1]} pods of {match[2]} exist")


def _find_group_reason(group: PodGroup) -> pending.PendingReason | None:
    """Return the worst reason in the pod group: an impossible request, else a shortage, else any other."""
    reasons = [
        (limit, _get_unsatisfiable_reason(limit), tuple(_iter_shortages(limit))) for limit in group.limits
    ]
    if not reasons:
        return None
    limit, never, shortages = max(reasons, key=lambda each: (bool(each[1]), bool(each[2])))
    return _build_reason(group, limit, never, () if never else shortages)


def _build_reason(
    group: PodGroup, limit: QueueLimit, never: str, shortages: tuple[pending.ResourceShortage, ...]
) -> pending.PendingReason:
    cause = _CAUSES.get(limit.reason, Cause.UNSCHEDULABLE)
    return pending.PendingReason(
        stage=pending.PendingStage.UNPLACED if cause is Cause.UNSCHEDULABLE else pending.PendingStage.HELD,
        cause=cause,
        reason=limit.reason or "Unschedulable",
        text=never or limit.message or limit.reason,
        since=group.created,
        shortages=shortages,
        queue=limit.queue or group.queue,
        never=bool(never),
        raw=limit.message,
    )


def _get_unsatisfiable_reason(limit: QueueLimit) -> str:
    """Return why the gang's request exceeds the limit of its queue and can never be met; else empty."""
    if limit.reason != "OverLimit":
        return ""
    for resource, requested, most in _iter_bounds(limit):
        if most < requested:
            return f"it requests {requested.text} {resource}, and the limit of its queue is {most.text}"
    return ""


def _iter_bounds(limit: QueueLimit) -> Iterator[tuple[str, Quantity, Quantity]]:
    for resource, text in sorted(limit.requested.items()):
        requested, most = parse_amount(resource, text), parse_amount(resource, limit.limit.get(resource, ""))
        # A negative number means unlimited.
        if requested is not None and most is not None and most.nano >= 0:
            yield resource, requested, most


def _iter_shortages(limit: QueueLimit) -> Iterator[pending.ResourceShortage]:
    for resource, requested, most in _iter_bounds(limit):
        used = parse_amount(resource, limit.used.get(resource, "0"))
        if used is not None and (free := subtract_quantity(most, used)) < requested:
            yield pending.ResourceShortage(
                resource=resource, missing=subtract_quantity(requested, free), requested=requested, free=free
            )


def _iter_event_reasons(observed: Observed) -> Iterable[pending.PendingReason]:
    """Yield a pending reason if an event reports missing pods, unless a pod group itself has a reason."""
    if any(group.limits for group in observed.pod_groups):
        return
    for event in list_events(observed, "PodGroup", "NotReady")[-1:]:
        if (parsed := _parse_message(event.message)) is not None:
            yield pending.PendingReason(
                stage=pending.PendingStage.UNPLACED,
                cause=Cause.UNSCHEDULABLE,
                reason=event.reason,
                text=parsed.text,
                since=event.at,
                raw=event.message,
            )


ADAPTERS: Final = {
    "": adapter.SchedulerAdapter(
        marks=_build_fields,
        title="KAI",
        program="kai-scheduler",
        # The newest version of this API group contains queues only.
        groups=adapter.SchedulerResource(group=_API, version="v2alpha2", plural="podgroups", kind="PodGroup"),
        scheduler_name="kai-scheduler",
        understands=frozenset({adapter.QUEUE, adapter.MIN_MEMBER, adapter.SCHEDULER_NAME}),
        status_parser=StatusParser(
            api=_API,
            message=_parse_message,
            group=_find_group_reason,
            events=_iter_event_reasons,
            groups=re.compile(r"pg-(?P<job>.{1,253})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ),
        keys=(_PREFIX,),
        groups_all_jobs=True,
        detect=_detect_queue,
        queues=adapter.SchedulerResource(
            group=_API,
            plural="queues",
            kind="Queue",
            label=f"{_PREFIX}queue",
            example="{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: NAME}, spec: "
            "{parentQueue: default, resources: {gpu: {quota: -1, limit: -1, overQuotaWeight: 1}}}}",
        ),
    )
}

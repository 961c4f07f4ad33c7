"""The adapter for Volcano, whose PodGroups have a queue and a priority, but no timeout.

The training-operator creates the PodGroup of a PyTorchJob if it runs with ``--gang-scheduler-name=volcano``.
In all other cases this server creates it.
"""

import re
from collections.abc import Iterable
from typing import Final

from backend_plugin.core.judging import pending
from backend_plugin.core.observed import Condition, Event, Observed, PodGroup, find_last_event
from backend_plugin.core.scheduling import adapter
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.status_parser import StatusParser, list_events
from backend_plugin.core.values import Manifest, omit_empty
from kfpytorch_common.causes import Cause

_NAME: Final = "volcano"
_API: Final = "scheduling.volcano.sh"
_GROUP: Final = "scheduling.k8s.io/group-name"
_QUEUE: Final = "scheduling.volcano.sh/queue-name"
"""The annotation with the queue; Volcano reads it only for a pod group that it creates itself."""
_ROLE: Final = "volcano.sh/task-spec"


def _build_operator_fields(gang: GangSpec) -> adapter.SchedulingFields:
    policy: Manifest = {
        "minAvailable": gang.min_member,
        "minResources": gang.min_resources,
        **omit_empty({"queue": gang.queue, "priorityClass": gang.common_priority}),
    }
    return adapter.SchedulingFields(
        scheduling_policy=policy,
        priority_class_name=gang.priority_class_name,
        permitted_values={_GROUP: gang.name, _QUEUE: gang.queue},
    )


def _build_backend_fields(gang: GangSpec) -> adapter.SchedulingFields:
    return adapter.SchedulingFields(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_annotations=lambda member: {_GROUP: gang.name, _ROLE: member.name},
        permitted_values={_QUEUE: gang.queue},
    )


def _build_pod_group_spec(gang: GangSpec) -> Manifest:
    return {
        "minMember": gang.min_member,
        # Without this field, workers alone could meet the minimum.
        "minTaskMember": {member.name: member.min_count for member in gang.members if member.min_count},
        "minResources": gang.min_resources,
        **omit_empty({"queue": gang.queue, "priorityClassName": gang.common_priority}),
    }


# ---- status parser


_FULL_TEXTS: Final = {
    "queue resource quota insufficient": "its queue has too few free resources",
    "resource in cluster is overused": "the cluster is full",
}
_FULL: Final = re.compile(rf"({'|'.join(_FULL_TEXTS)})\b:?(.{{0,1000}})")
_RESOURCE: Final = re.compile(r"(?:insufficient|overused) ([\w./-]{1,253})")
_UNPLACED: Final = re.compile(r"(?<!\d)(\d{1,9})/(?=(\d{1,9}))\2 tasks in gang unschedulable")


def _parse_message(message: str) -> pending.SchedulerMessage | None:
    if full := _FULL.search(message):
        names = dict.fromkeys(each.rstrip(".,") for each in _RESOURCE.findall(full[2]))
        shortages = tuple(pending.ResourceShortage(resource=each) for each in names)
        return pending.SchedulerMessage(text=_FULL_TEXTS[full[1]], shortages=shortages)
    if unplaced := _UNPLACED.search(message):
        # Before the pods exist, the message counts zero tasks.
        none = "waits until its pods may be created"
        text = f"{unplaced[1]} of {unplaced[2]} members of its gang cannot be placed"
        return pending.SchedulerMessage(text=text if int(unplaced[2]) else none)
    return None


def _find_group_reason(group: PodGroup) -> pending.PendingReason | None:
    for condition in group.conditions:
        if condition.type == "Unschedulable" and condition.true and not _is_outdated(condition, group):
            return _build_unplaced_reason(group, condition)
    if group.phase != "Pending":
        return None
    return pending.PendingReason(
        stage=pending.PendingStage.HELD,
        cause=Cause.QUEUE,
        reason=group.phase,
        text="the group is not admitted yet",
        queue=group.queue,
    )


def _build_unplaced_reason(group: PodGroup, condition: Condition) -> pending.PendingReason:
    reason, message = condition.reason or condition.type, condition.message
    parsed = _parse_message(message) or pending.SchedulerMessage(text=message or condition.reason)
    return pending.PendingReason(
        stage=pending.PendingStage.UNPLACED,
        cause=Cause.UNSCHEDULABLE,
        reason=reason,
        text=parsed.text,
        since=condition.since,
        shortages=parsed.shortages,
        queue=group.queue,
        raw=message,
    )


def _is_outdated(condition: Condition, group: PodGroup) -> bool:
    """True if the gang was placed after the time of `condition`, which Volcano then does not update."""
    placed = [each.since for each in group.conditions if each.type == "Scheduled" and each.true]
    return any(at is not None and condition.since is not None and at >= condition.since for at in placed)


def _iter_event_reasons(observed: Observed) -> Iterable[pending.PendingReason]:
    """Yield the reason why a PodGroup is not admitted, which Volcano reports only in events."""
    waiting = [group for group in observed.pod_groups if group.phase == "Pending" and group.api in ("", _API)]
    messages = _find_shortage_messages(observed)
    latest = find_last_event(messages)
    if waiting and latest is not None:
        yield pending.PendingReason(
            stage=pending.PendingStage.HELD,
            cause=Cause.QUEUE,
            reason=latest.reason,
            text=messages[latest].text,
            since=waiting[0].created or latest.at,
            shortages=messages[latest].shortages,
            queue=waiting[0].queue,
            raw=latest.message,
        )


def _find_shortage_messages(observed: Observed) -> dict[Event, pending.SchedulerMessage]:
    events = list_events(observed, "PodGroup", "Unschedulable")
    parsed = {event: _parse_message(event.message) for event in events}
    return {event: message for event, message in parsed.items() if message and message.shortages}


_BY_OPERATOR: Final = adapter.SchedulerAdapter(
    marks=_build_operator_fields,
    title="Volcano",
    program="vc-scheduler",
    groups=adapter.SchedulerResource(group=_API, plural="podgroups", kind="PodGroup"),
    matches_flag=lambda name: name.lower() == _NAME,
    scheduler_name=_NAME,
    understands=frozenset({adapter.QUEUE, adapter.MIN_MEMBER, adapter.SCHEDULER_NAME}),
    keys=(_GROUP, "volcano.sh/", f"{_API}/"),
    gang_keys=(_GROUP,),
    status_parser=StatusParser(
        api=_API, message=_parse_message, group=_find_group_reason, events=_iter_event_reasons
    ),
    queues=adapter.SchedulerResource(
        group=_API,
        plural="queues",
        kind="Queue",
        example="{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: NAME}, "
        "spec: {weight: 1, reclaimable: true}}",
    ),
)
ADAPTERS: Final = adapter.build_adapters(
    _BY_OPERATOR,
    adapter.Companion(api_version=f"{_API}/v1beta1", kind="PodGroup", spec=_build_pod_group_spec),
    marks=_build_backend_fields,
)

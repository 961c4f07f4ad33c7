"""The adapter for Volcano.

The operator creates the PodGroup if it runs with ``--gang-scheduler-name=volcano``; otherwise this server
does, and also specifies the minimum of each role. A PodGroup has a queue and a priority, but no timeout.
"""

import re
from collections.abc import Iterable
from typing import Final

from backend_plugin.core.observed import Condition, Observed, PodGroup
from backend_plugin.core.scheduling.adapter import (
    MIN_MEMBER,
    QUEUE,
    SCHEDULER_NAME,
    Adapter,
    Companion,
    Marks,
    QueueKind,
    Rank,
    Seen,
    Sighting,
)
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.gang import Gang, Member
from backend_plugin.core.scheduling.operated import (
    FLAG,
    OPERATOR,
    PLUGIN,
    unless_operator,
    unless_ours,
    without_operator,
)
from backend_plugin.core.scheduling.words import Words
from backend_plugin.core.values import Manifest
from backend_plugin.core.waits import Lack, Said, Stage, Wait
from kfpytorch_common.causes import Cause

_NAME: Final = "volcano"
_API: Final = "scheduling.volcano.sh"
_QUEUES: Final = QueueKind(group=_API, plural="queues")
_GROUP: Final = "scheduling.k8s.io/group-name"
_QUEUE: Final = "scheduling.volcano.sh/queue-name"
"""Volcano reads the queue from this annotation only for a pod group that it creates itself."""
_ROLE: Final = "volcano.sh/task-spec"
_KEYS: Final = (_GROUP, "volcano.sh/", f"{_API}/")
_UNDERSTANDS: Final = frozenset({QUEUE, MIN_MEMBER, SCHEDULER_NAME})


def _operators_marks(gang: Gang) -> Marks:
    named = {"queue": gang.queue, "priorityClass": gang.common_priority}
    policy: Manifest = {
        "minAvailable": gang.min_member,
        "minResources": gang.min_resources,
        **{key: value for key, value in named.items() if value},
    }
    return Marks(
        run_policy={"schedulingPolicy": policy},
        priority_class_name=gang.priority_class_name,
        other_words={_GROUP: gang.name, _QUEUE: gang.queue},
    )


def _our_marks(gang: Gang) -> Marks:
    def annotations(member: Member) -> dict[str, str]:
        return {_GROUP: gang.name, _ROLE: member.name}

    return Marks(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_annotations=annotations,
        other_words={_QUEUE: gang.queue},
    )


def _spec(gang: Gang) -> Manifest:
    named = {"queue": gang.queue, "priorityClassName": gang.common_priority}
    return {
        "minMember": gang.min_member,
        # With this field the minimum includes the master.
        "minTaskMember": {member.name: member.min_count for member in gang.members if member.min_count},
        "minResources": gang.min_resources,
        **{key: value for key, value in named.items() if value},
    }


def _is_asked(name: str) -> bool:
    return name.lower() == _NAME


def _operator(found: Findings, _: str) -> Seen | None:
    name = found.operator_scheduler
    return Seen(why=f"the training-operator runs with {FLAG}={name}") if name and _is_asked(name) else None


# ---- status parser


_FULL: Final = re.compile(
    r"(?:queue resource quota insufficient|resource in cluster is overused)\b:?(.{0,1000})"
)
_RESOURCE: Final = re.compile(r"(?:insufficient|overused) ([\w./-]{1,253})")
_UNPLACED: Final = re.compile(r"(?<!\d)(\d{1,9})/(?=(\d{1,9}))\2 tasks in gang unschedulable")


def _message(message: str) -> Said | None:
    if full := _FULL.search(message):
        names = dict.fromkeys(each.rstrip(".,") for each in _RESOURCE.findall(full[1]))
        where = (
            "its queue has too few free resources" if full[0].startswith("queue") else "the cluster is full"
        )
        return Said(said=where, lacks=tuple(Lack(resource=each) for each in names))
    if unplaced := _UNPLACED.search(message):
        # Before the pods exist, the message counts zero tasks.
        none = "waits until its pods may be created"
        said = f"{unplaced[1]} of {unplaced[2]} members of its gang cannot be placed"
        return Said(said=said if int(unplaced[2]) else none)
    return None


def _of_group(group: PodGroup) -> Wait | None:
    for condition in group.conditions:
        if condition.type == "Unschedulable" and condition.true and not _is_past(condition, group):
            said = _message(condition.message) or Said(said=condition.message or condition.reason)
            return Wait(
                stage=Stage.UNPLACED,
                cause=Cause.UNSCHEDULABLE,
                reason=condition.reason or condition.type,
                said=said.said,
                since=condition.since,
                lacks=said.lacks,
                queue=group.queue,
                raw=condition.message,
            )
    if group.phase == "Pending":
        said = Said(said="the group is not admitted yet")
        return Wait(
            stage=Stage.HELD, cause=Cause.QUEUE, reason=group.phase, said=said.said, queue=group.queue
        )
    return None


def _is_past(condition: Condition, group: PodGroup) -> bool:
    """True if the gang was placed after the condition; Volcano does not update the older condition."""
    placed = [each.since for each in group.conditions if each.type == "Scheduled" and each.true]
    return any(at is not None and condition.since is not None and at >= condition.since for at in placed)


def _of_events(observed: Observed) -> Iterable[Wait]:
    """Yield the pending reason of a group that is not admitted; Volcano reports it only in events."""
    pending = [group for group in observed.pod_groups if group.phase == "Pending" and group.api in ("", _API)]
    told = [each for each in observed.events if each.kind == "PodGroup" and each.reason == "Unschedulable"]
    full = [(each, said) for each in told if (said := _message(each.message)) is not None and said.lacks]
    if pending and full:
        event, said = max(full, key=lambda each: (each[0].at is not None, each[0].at, each[0].message))
        yield Wait(
            stage=Stage.HELD,
            cause=Cause.QUEUE,
            reason=event.reason,
            said=said.said,
            since=pending[0].created or event.at,
            lacks=said.lacks,
            queue=pending[0].queue,
            raw=event.message,
        )


_WORDS: Final = Words(api=_API, message=_message, group=_of_group, events=_of_events)

STYLES: Final = {
    OPERATOR: Adapter(
        marks=_operators_marks,
        by_operator=True,
        scheduler_name=_NAME,
        understands=_UNDERSTANDS,
        keys=_KEYS,
        words=_WORDS,
        sighting=Sighting(rank=Rank.OPERATOR, sees=_operator),
        denied=unless_operator(_API, _is_asked),
        queues=_QUEUES,
    ),
    PLUGIN: Adapter(
        marks=_our_marks,
        companion=Companion(api_version=f"{_API}/v1beta1", kind="PodGroup", spec=_spec),
        scheduler_name=_NAME,
        understands=_UNDERSTANDS,
        keys=_KEYS,
        words=_WORDS,
        sighting=Sighting(rank=Rank.API, sees=without_operator(_API)),
        denied=unless_ours(_API),
        queues=_QUEUES,
    ),
}

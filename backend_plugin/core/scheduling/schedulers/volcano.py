"""Volcano: like co-scheduling, but with queues, a priority of the group, and without a time-out.

Its PodGroup is made by the operator, where that runs with ``--gang-scheduler-name=volcano``, or by us; then
it also says how many of each role it takes.
"""

from collections.abc import Sequence
from typing import Final

from backend_plugin.core.scheduling.adapter import MIN_MEMBER, QUEUE, SCHEDULER_NAME, Adapter, Marks
from backend_plugin.core.scheduling.gang import Gang, Member
from backend_plugin.core.values import Manifest

_MADE: Final = ("scheduling.volcano.sh/v1beta1", "PodGroup")
_GROUP: Final = "scheduling.k8s.io/group-name"
_ROLE: Final = "volcano.sh/task-spec"
_UNDERSTANDS: Final = frozenset({QUEUE, MIN_MEMBER, SCHEDULER_NAME})


def _operators_marks(gang: Gang) -> Marks:
    named = {"queue": gang.queue, "priorityClass": gang.common_priority}
    policy: Manifest = {
        "minAvailable": gang.min_member,
        "minResources": gang.min_resources,
        **{key: value for key, value in named.items() if value},
    }
    return Marks(run_policy={"schedulingPolicy": policy}, priority_class_name=gang.priority_class_name)


def _our_marks(gang: Gang) -> Marks:
    def annotations(member: Member) -> dict[str, str]:
        return {_GROUP: gang.name, _ROLE: member.name}

    return Marks(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_annotations=annotations,
    )


def _group(gang: Gang) -> Sequence[Manifest]:
    named = {"queue": gang.queue, "priorityClassName": gang.common_priority}
    spec: Manifest = {
        "minMember": gang.min_member,
        # With it the master is among those for whom there must be room.
        "minTaskMember": {member.name: member.min_count for member in gang.members if member.min_count},
        "minResources": gang.min_resources,
        **{key: value for key, value in named.items() if value},
    }
    return [{"apiVersion": _MADE[0], "kind": _MADE[1], "spec": spec}]


STYLES: Final = {
    "operator": Adapter(marks=_operators_marks, scheduler_name="volcano", understands=_UNDERSTANDS),
    "plugin": Adapter(
        marks=_our_marks, companions=_group, makes=_MADE, scheduler_name="volcano", understands=_UNDERSTANDS
    ),
}

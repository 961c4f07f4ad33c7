"""Apache YuniKorn, which reads everything off the pods, and holds their places with pods of its own.

Those have to ask for exactly what the real ones ask for, and to be where these may be: else the places are
given up, and the pods are scheduled one by one.
"""

from typing import Final

import msgspec

from backend_plugin.core.scheduling import requests
from backend_plugin.core.scheduling.adapter import MIN_MEMBER, QUEUE, SCHEDULER_NAME, TIMEOUT, Adapter, Marks
from backend_plugin.core.scheduling.gang import Gang, Member
from backend_plugin.core.values import JsonValue, Manifest

_PREFIX: Final = "yunikorn.apache.org/"
_PLACES: Final = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


def _marks(gang: Gang) -> Marks:
    labels = {f"{_PREFIX}app-id": gang.name, f"{_PREFIX}queue": gang.queue}
    # The same for every pod: whichever comes first speaks for all.
    groups = [_task_group(member) for member in gang.members if member.min_count]
    shared = {
        f"{_PREFIX}task-groups": msgspec.json.encode(groups).decode(),
        f"{_PREFIX}schedulingPolicyParameters": _parameters(gang),
    }

    def annotations(member: Member) -> dict[str, str]:
        own = {f"{_PREFIX}task-group-name": member.name} if member.min_count else {}
        return {**own, **shared}

    return Marks(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_labels={key: value for key, value in labels.items() if value},
        pod_annotations=annotations,
    )


def _task_group(member: Member) -> Manifest:
    places: dict[str, JsonValue] = {key: member.spec[key] for key in _PLACES if member.spec.get(key)}
    return {
        "name": member.name,
        "minMember": member.min_count,
        "minResource": requests.written(member.request),
        **places,
    }


def _parameters(gang: Gang) -> str:
    """Hard: by default a gang that does not fit in time is one no more, and its pods block each other."""
    waits = [] if gang.timeout_seconds is None else [f"placeholderTimeoutInSeconds={gang.timeout_seconds}"]
    return " ".join([*waits, "gangSchedulingStyle=Hard"])


STYLES: Final = {
    "": Adapter(
        marks=_marks,
        scheduler_name="yunikorn",
        understands=frozenset({QUEUE, TIMEOUT, MIN_MEMBER, SCHEDULER_NAME}),
    ),
}

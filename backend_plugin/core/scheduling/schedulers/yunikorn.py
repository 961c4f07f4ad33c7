"""The adapter for Apache YuniKorn, which reads all options from the pods and creates placeholder pods."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from backend_plugin.core.judging import pending
from backend_plugin.core.names import PLACE, PLACE_OF
from backend_plugin.core.observed import Event, Observed
from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.scheduling import adapter, pod_requests
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang import GangRole, GangSpec
from backend_plugin.core.scheduling.pod_requests import Amounts
from backend_plugin.core.scheduling.status_parser import StatusParser, parse_amount
from backend_plugin.core.schema_check import parse_amounts
from backend_plugin.core.values import Manifest, omit_empty, pick_fields
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import subtract_quantity

_NAME: Final = "yunikorn"
_PREFIX: Final = "yunikorn.apache.org/"
_PLACES: Final = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


def _build_fields(gang: GangSpec) -> adapter.SchedulingFields:
    labels = {f"{_PREFIX}app-id": gang.name, f"{_PREFIX}queue": gang.queue}
    # Every pod has all task groups, because YuniKorn uses those of the first pod that it receives.
    groups = [_build_task_group(gang, member) for member in gang.members if member.min_count]
    shared = {
        f"{_PREFIX}task-groups": msgspec.json.encode(groups).decode(),
        f"{_PREFIX}schedulingPolicyParameters": _format_parameters(gang),
    }

    def build_annotations(member: GangRole) -> dict[str, str]:
        own = {f"{_PREFIX}task-group-name": member.name} if member.min_count else {}
        return {**own, **shared}

    return adapter.SchedulingFields(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_labels=omit_empty(labels),
        pod_annotations=build_annotations,
        permitted_values={**labels, "applicationId": gang.name, "queue": gang.queue},
    )


def _build_task_group(gang: GangSpec, member: GangRole) -> Manifest:
    return {
        "name": member.name,
        "minMember": member.min_count,
        "minResource": pod_requests.format_amounts(_compute_request(member)),
        # Labels of the placeholder pods: only their messages contain the pending reason.
        "labels": {**gang.identity, PLACE: member.name, PLACE_OF: gang.name},
        **pick_fields(member.spec, _PLACES),
    }


def _compute_request(member: GangRole) -> Amounts:
    """Return the request for the placeholder of a pod: the request that YuniKorn 1.8 computes for the pod.

    YuniKorn counts a native sidecar twice while the init containers run. If a placeholder is smaller than its
    pod, YuniKorn releases all placeholders of the task group.
    """
    overhead = parse_amounts(get_mapping(member.spec, "overhead"))
    sidecars: list[Amounts] = []
    peaks = [member.request]
    for container in filter(pod_requests.is_sidecar, get_mappings(member.spec, "initContainers")):
        sidecars.append(pod_requests.read_request(container, member.defaults))
        peaks.append(pod_requests.add_amounts([sidecars[-1], *sidecars, overhead]))
    # Pod-level requests replace those of the containers. The API server sets both if `resources` is set.
    has_pod_level = bool(get_mapping(member.spec, "resources"))
    pod_level = {name: member.request[name] for name in ("cpu", "memory") if name in member.request}
    return {**pod_requests.compute_maximum(peaks), **(pod_level if has_pod_level else {})}


def _format_parameters(gang: GangSpec) -> str:
    """Return the scheduling parameters: the timeout, and `Hard` as the style of gang scheduling.

    With the default style, a gang that does not fit in time is scheduled pod by pod, and gangs can deadlock.
    """
    waits = [] if gang.timeout_seconds is None else [f"placeholderTimeoutInSeconds={gang.timeout_seconds}"]
    return " ".join([*waits, "gangSchedulingStyle=Hard"])


def _detect_webhook(capabilities: Capabilities, _: str) -> adapter.Detection | None:
    if capabilities.admission_scheduler != _NAME:
        return None
    return adapter.Detection(
        rank=adapter.DetectionRank.ADMISSION,
        why=f"an admission webhook gives every pod the scheduler {_NAME}",
    )


# ---- status parser


_NO_ROOM: Final = re.compile(
    r"does not fit in queue '([^']{1,253})' "
    r"\(requested map\[([^][]{0,1000})\], available map\[([^][]{0,1000})\]\)"
)
_OVER_QUOTA: Final = re.compile(
    r"exceeds the available user quota \(requested map\[([^][]{0,1000})\], available map\[([^][]{0,1000})\]\)"
)
_WHOLE: Final = re.compile(r"-?\d{1,18}")
_WAITS: Final = re.compile(r"waiting for cluster resources|pending for the requested resources")
_SKIPPED: Final = re.compile(r"queue quota has been exceed")
_REJECTED: Final = re.compile(r"ApplicationRejected: (.{1,2000})", re.DOTALL)


# YuniKorn counts CPUs in thousandths, under the name `vcore`.
_UNITS: Final = {"vcore": ("cpu", "m")}
_FULL: Final = "its queue has too few free resources"


def _parse_message(message: str) -> pending.SchedulerMessage | None:
    if match := _NO_ROOM.search(message):
        return _build_queue_message(_FULL, match[2], match[3], match[1])
    if match := _OVER_QUOTA.search(message):
        return _build_queue_message(
            "its user has used the quota for one user of the queue", match[1], match[2]
        )
    if _WAITS.search(message):
        return pending.SchedulerMessage(
            text="neither its queue nor a node has enough free resources", is_unspecific=True, gang=False
        )
    if _SKIPPED.search(message):
        return _build_queue_message(_FULL)
    return None


def _build_queue_message(
    text: str, requested: str = "", available: str = "", queue: str = ""
) -> pending.SchedulerMessage:
    # The message contains nothing about nodes: YuniKorn searches for one only if the queue has room.
    return pending.SchedulerMessage(
        text=text, shortages=_list_shortages(requested, available), queue=queue, cause=Cause.QUEUE, gang=False
    )


def _parse_amounts(amounts: str) -> list[tuple[str, str]]:
    """Return the names and whole numbers of a map that Go printed: ``memory:1000 vcore:4``."""
    parts = (each.rpartition(":") for each in amounts.split())
    return [(name, number) for name, _, number in parts if name and _WHOLE.fullmatch(number)]


def _list_shortages(requested: str, available: str) -> tuple[pending.ResourceShortage, ...]:
    """Return the resources with less available than requested; `available` omits unlimited resources."""
    free = dict(_parse_amounts(available))
    shortages = []
    for each, amount in _parse_amounts(requested):
        if each in free and int(free[each]) < int(amount):
            resource, unit = _UNITS.get(each, (each, ""))
            needed, left = parse_amount(resource, amount + unit), parse_amount(resource, free[each] + unit)
            missing = subtract_quantity(needed, left) if needed is not None and left is not None else None
            shortages.append(
                pending.ResourceShortage(resource=resource, missing=missing, requested=needed, free=left)
            )
    return tuple(sorted(shortages, key=lambda shortage: shortage.resource))


def _iter_event_reasons(observed: Observed) -> Iterable[pending.PendingReason]:
    """Yield the pending reason of all unbound pods if YuniKorn rejected the job.

    Only the pods that exist at the rejection get its message; pods that are created later stay pending.
    """
    rejections = _find_rejections(observed.events)
    why = [pod.message for pod in observed.pods if pod.reason == "ApplicationRejected"]
    if texts := [*why, *rejections]:
        yield pending.PendingReason(
            stage=pending.PendingStage.UNPLACED,
            cause=Cause.INVALID_CONFIG,
            reason="ApplicationRejected",
            text=f"its scheduler has rejected it: {texts[-1].strip()}",
            replicas=tuple(pod.replica for pod in observed.pods if pod.role and not pod.is_bound),
            of_gang=True,
            # The pod fails first; the event with the whole reason follows a moment later.
            never=bool(rejections),
        )


def _find_rejections(events: Iterable[Event]) -> list[str]:
    failures = [each for each in events if "ApplicationFailed" in (each.reason, each.action)]
    return [match[1] for each in failures if (match := _REJECTED.search(each.message))]


_MISMATCH: Final = "not matching placeholder"
_ALOUD: Final = {
    "GangSchedulingFailed": "it is no longer a gang: not all of its placeholder pods were placed in time, and"
    " its scheduler (style Soft) places its pods one by one",
    "PlaceholderCreateFailed": "it is not a gang: its scheduler could not create its placeholder pods,"
    " and places its pods one by one; a quota, a LimitRange or PodSecurity may reject the placeholders",
    "TaskGroupsError": "it is not a gang: its scheduler cannot read its task groups",
    _MISMATCH: "a pod has other requests than its placeholder pod, which is given up: a webhook or a"
    " LimitRange has changed the pod",
}
"""The warnings, by the reason, action or message of the event in which YuniKorn reports the problem.

YuniKorn schedules the pods nevertheless.
"""


def _iter_warnings(observed: Observed) -> Iterable[pending.JobWarning]:
    first_events: dict[str, Event] = {}
    for event in observed.events:
        for word in (event.action, event.reason, _MISMATCH if _MISMATCH in event.message else ""):
            if word in _ALOUD:
                first_events.setdefault(word, event)
    for word, event in first_events.items():
        yield pending.JobWarning(text=_ALOUD[word] + (f" ({event.message})" if event.message else ""))


ADAPTERS: Final = {
    "": adapter.SchedulerAdapter(
        marks=_build_fields,
        title="YuniKorn",
        program=_NAME,
        scheduler_name=_NAME,
        understands=frozenset({adapter.QUEUE, adapter.TIMEOUT, adapter.MIN_MEMBER, adapter.SCHEDULER_NAME}),
        status_parser=StatusParser(
            message=_parse_message,
            events=_iter_event_reasons,
            notes=_iter_warnings,
            places=re.compile(r"tg-.{1,28}-.{1,20}-[a-z0-9]{1,10}"),
        ),
        keys=(_PREFIX,),
        gang_keys=(f"{_PREFIX}app-id",),
        detect=_detect_webhook,
        not_after_admission="it has its own queues, and makes no placeholder pods for a job that is resumed",
    )
}

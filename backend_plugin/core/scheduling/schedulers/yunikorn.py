"""Apache YuniKorn, which reads everything off the pods, and holds their places with pods of its own.

Those have to ask for exactly what the real ones ask for, and to be where these may be: else the places are
given up, and the pods are scheduled one by one.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from backend_plugin.core.observed import PLACE, PLACE_OF, Event, Observed
from backend_plugin.core.quantity import difference
from backend_plugin.core.scheduling import requests
from backend_plugin.core.scheduling.adapter import (
    MIN_MEMBER,
    QUEUE,
    SCHEDULER_NAME,
    TIMEOUT,
    Adapter,
    Marks,
    Rank,
    Seen,
    Sighting,
)
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.gang import Gang, Member
from backend_plugin.core.scheduling.words import Words, amount
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.core.waits import Lack, Note, Said, Stage, Wait
from kfpytorch_common.causes import Cause

_NAME: Final = "yunikorn"
_PREFIX: Final = "yunikorn.apache.org/"
_PLACES: Final = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


def _marks(gang: Gang) -> Marks:
    labels = {f"{_PREFIX}app-id": gang.name, f"{_PREFIX}queue": gang.queue}
    # The same for every pod: whichever comes first speaks for all.
    groups = [_task_group(gang, member) for member in gang.members if member.min_count]
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
        other_words={**labels, "applicationId": gang.name, "queue": gang.queue},
    )


def _task_group(gang: Gang, member: Member) -> Manifest:
    places: dict[str, JsonValue] = {key: member.spec[key] for key in _PLACES if member.spec.get(key)}
    return {
        "name": member.name,
        "minMember": member.min_count,
        "minResource": requests.written(member.request),
        # Of the pods that hold the places: only they are told why they wait.
        "labels": {**gang.identity, PLACE: member.name, PLACE_OF: gang.name},
        **places,
    }


def _parameters(gang: Gang) -> str:
    """Hard: by default a gang that does not fit in time is one no more, and its pods block each other."""
    waits = [] if gang.timeout_seconds is None else [f"placeholderTimeoutInSeconds={gang.timeout_seconds}"]
    return " ".join([*waits, "gangSchedulingStyle=Hard"])


def _rewritten(found: Findings, _: str) -> Seen | None:
    if found.admission_scheduler != _NAME:
        return None
    return Seen(why=f"an admission webhook gives every pod the scheduler {_NAME}")


# ---- its words


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


_FULL: Final = "its queue has no room for it"


def _message(message: str) -> Said | None:
    if found := _NO_ROOM.search(message):
        return _of_queue(_FULL, found[2], found[3], found[1])
    if found := _OVER_QUOTA.search(message):
        return _of_queue("its user has used up what the queue gives one", found[1], found[2])
    if _WAITS.search(message):
        return Said(said="neither its queue nor a node has room for it", vague=True, gang=False)
    if _SKIPPED.search(message):
        return _of_queue(_FULL)
    return None


def _of_queue(said: str, requested: str = "", available: str = "", queue: str = "") -> Said:
    """No node is looked for before the queue has room."""
    return Said(said=said, lacks=_lacks(requested, available), queue=queue, cause=Cause.QUEUE, gang=False)


def _entries(amounts: str) -> list[tuple[str, str]]:
    """Return the names and whole numbers of a map that Go printed: ``memory:1000 vcore:4``."""
    parts = (each.rpartition(":") for each in amounts.split())
    return [(name, number) for name, _, number in parts if name and _WHOLE.fullmatch(number)]


def _lacks(requested: str, available: str) -> tuple[Lack, ...]:
    """What is short; a resource without a limit is not among the available."""
    free = dict(_entries(available))
    found = []
    for each, wanted in _entries(requested):
        if each in free and int(free[each]) < int(wanted):
            # It counts processors in thousandths, under a name of its own.
            resource, unit = ("cpu", "m") if each == "vcore" else (each, "")
            asked, left = amount(resource, wanted + unit), amount(resource, free[each] + unit)
            missing = difference(asked, left) if asked is not None and left is not None else None
            found.append(Lack(resource=resource, missing=missing, asked=asked, free=left))
    return tuple(sorted(found, key=lambda lack: lack.resource))


def _of_events(observed: Observed) -> Iterable[Wait]:
    """Of a rejected application the members that came late hear nothing, and wait for ever."""
    told = [each for each in observed.events if "ApplicationFailed" in (each.reason, each.action)]
    found = [said for each in told if (said := _REJECTED.search(each.message)) is not None]
    why = [pod.message.strip() for pod in observed.pods if pod.reason == "ApplicationRejected"]
    if found or why:
        yield Wait(
            stage=Stage.UNPLACED,
            cause=Cause.CONFIG,
            reason="ApplicationRejected",
            said=f"its scheduler has rejected it: {found[-1][1].strip() if found else why[-1]}",
            replicas=tuple(pod.replica for pod in observed.pods if pod.role and not pod.placed),
            whole=True,
            # The pod is told first, and the event, which says all, a moment later.
            never=bool(found),
        )


_ALOUD: Final = {
    "GangSchedulingFailed": "it is no gang any more: not all of its places were found in time, and its"
    " scheduler (style Soft) places its pods one by one",
    "PlaceholderCreateFailed": "it is no gang: its scheduler could not make the pods that hold its places,"
    " and places its pods one by one; a quota, a LimitRange or PodSecurity may refuse them",
    "TaskGroupsError": "it is no gang: its scheduler cannot read who belongs to it",
}
"""What it says in an event of one pod, and goes on."""
_MISMATCH: Final = "not matching placeholder"


def _notes(observed: Observed) -> Iterable[Note]:
    told: dict[str, Event] = {}
    for event in observed.events:
        for word in (event.action, event.reason):
            if word in _ALOUD:
                told.setdefault(word, event)
        if _MISMATCH in event.message:
            told.setdefault(_MISMATCH, event)
    for word, event in told.items():
        said = _ALOUD.get(word) or (
            "a pod asks for something else than what was held for it, and the place is given up: a webhook or"
            " a LimitRange has changed it"
        )
        yield Note(said=f"{said} ({event.message})" if event.message else said)


STYLES: Final = {
    "": Adapter(
        marks=_marks,
        scheduler_name=_NAME,
        understands=frozenset({QUEUE, TIMEOUT, MIN_MEMBER, SCHEDULER_NAME}),
        words=Words(
            message=_message,
            events=_of_events,
            notes=_notes,
            places=re.compile(r"tg-.{1,28}-.{1,20}-[a-z0-9]{1,10}"),
        ),
        keys=(_PREFIX,),
        sighting=Sighting(rank=Rank.ADMISSION, sees=_rewritten),
        not_after_admission="it has queues of its own, and holds no places for a job that is let go again",
    ),
}

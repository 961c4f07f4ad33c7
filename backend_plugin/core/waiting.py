"""What a job waits for: groups, queues, quotas, nodes, images, containers.

Lives here: the tables from what schedulers and the kubelet say to a sentence. Does not: how long that is
borne, and what Flyte is told.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import structs

from backend_plugin.core import deaths
from backend_plugin.core.observed import Container, Event, Observed, Pod, PodGroup
from kfpytorch_common.causes import Cause


class Stage(enum.IntEnum):
    """How far the waiting has come; the first is told first."""

    HELD = 0
    """By a queue or a quota: no pod may be placed yet."""
    UNPLACED = 1
    STARTING = 2
    """On a node, and not running yet."""
    RESTARTING = 3
    """It has run, and will run again."""


class Wait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that is waited for, by some of the replicas."""

    stage: Stage
    cause: Cause
    reason: str
    """A word of Kubernetes or of the scheduler: ``Unschedulable``."""
    said: str
    replicas: tuple[str, ...] = ()
    """Empty when the job waits as a whole."""
    since: datetime | None = None


_NODES: Final = re.compile(r"(\d{1,9})/(\d{1,9}) nodes are available: ?(.{0,2000})", re.DOTALL)
_LACKING: Final = re.compile(r"^(\d{1,9}) Insufficient ([\w./-]{1,253})$")
_OTHERWISE: Final = re.compile(r"^(\d{1,9}) node\(s\) (.+)$", re.DOTALL)
_GAP: Final = re.compile(r"resource gap: map\[(.{0,1000})\]", re.DOTALL)
_GAP_ENTRY: Final = re.compile(r"([a-zA-Z][\w./-]{0,252}):\{\{(\d{1,18}) (-?\d{1,2})\}")
_GANG: Final = (
    (
        re.compile(r"enough sibling pods, current pods number: (\d{1,9}), minMember of group: (\d{1,9})"),
        "{0} of the {1} members of its gang are there",
    ),
    (
        re.compile(r"cannot proceed due to gated pods"),
        "members of its gang are held back by scheduling gates",
    ),
    (
        re.compile(r"rejected due to Pod \S{1,253} is unschedulable|rejection in PostFilter|failed recently"),
        "not all of its gang has found a place",
    ),
    (re.compile(r"PodGroup not found"), "its PodGroup is not there"),
)
"""What co-scheduling says of a gang, in words that need no knowledge of it."""
_UNUSED: Final = re.compile(
    r"insufficient unused quota for (\S{1,253}) in flavor (\S{1,253}), (\S{1,40}) more needed"
)
_NEVER: Final = re.compile(
    r"insufficient quota for (\S{1,253}) in flavor .{0,600}maximum capacity \((.{1,40})\)", re.DOTALL
)
_QUEUE: Final = re.compile(r"(LocalQueue|ClusterQueue) (\S{1,253}) (doesn't exist|is inactive|is stopped)")


def of_job(observed: Observed, pods: Sequence[Pod], exit_codes: Mapping[int, Cause]) -> list[Wait]:
    """What the job as a whole waits for: its groups first, then refusals to make its pods."""
    # What groups and events tell of, they outlive.
    complete = observed.job is not None and len(pods) >= observed.job.replicas
    if complete and all(pod.placed for pod in pods):
        return []
    groups = [wait for group in observed.pod_groups if (wait := of_group(group)) is not None]
    refusals = [] if complete else _of_refusals(observed.events)
    return [*groups, *refusals, *_of_placeholders(observed.pods, pods, exit_codes)]


def of_group(group: PodGroup) -> Wait | None:
    """What a PodGroup or a Workload says; None when it says nothing, or holds nothing back."""
    by_type = {condition.type: condition for condition in group.conditions}
    where = f"queue {group.queue}" if group.queue else f"{group.kind} {group.name}".strip()
    for kind, holds, cause in _GROUP_CONDITIONS:
        condition = by_type.get(kind)
        if condition is not None and condition.true is holds:
            said = quota(condition.message) or condition.message or condition.reason or kind
            return Wait(
                stage=Stage.HELD if cause is Cause.QUEUE else Stage.UNPLACED,
                cause=cause,
                reason=condition.reason or kind,
                said=f"{where}: {said}",
                since=condition.since,
            )
    if group.phase in _HELD_PHASES:
        stage, cause, said = _HELD_PHASES[group.phase]
        return Wait(stage=stage, cause=cause, reason=group.phase, said=f"{where}: {said}")
    return None


_GROUP_CONDITIONS: Final[Sequence[tuple[str, bool, Cause]]] = (
    ("QuotaReserved", False, Cause.QUEUE),
    ("Admitted", False, Cause.QUEUE),
    ("PodGroupInitiallyScheduled", False, Cause.UNSCHEDULABLE),
    ("Unschedulable", True, Cause.UNSCHEDULABLE),
)
"""Kueue's, the in-tree gang's, Volcano's and KAI's: the type, the value that holds the job, the cause."""

_HELD_PHASES: Final = {
    "Pending": (Stage.HELD, Cause.QUEUE, "the group is not admitted yet"),
    "PreScheduling": (Stage.UNPLACED, Cause.UNSCHEDULABLE, "the group waits for its members"),
    "Scheduling": (Stage.UNPLACED, Cause.UNSCHEDULABLE, "the group waits for its members to be placed"),
}
"""Volcano's and co-scheduling's; what the members themselves say is told before the latter."""


def quota(message: str) -> str:
    """Kueue's sentence on a quota, for a person; empty for any other text."""
    if match := _UNUSED.search(message):
        return f"waits for {match[3]} more {match[1]} (flavor {match[2]})"
    if match := _NEVER.search(message):
        return f"can never be admitted: it asks for more {match[1]} than the queue's {match[2]}"
    if match := _QUEUE.search(message):
        return f"{match[1]} {match[2]} {match[3]}"
    return ""


REFUSALS: Final[Sequence[tuple[str, Cause]]] = (
    ("exceeded quota", Cause.QUOTA),
    ("failed calling webhook", Cause.INFRA),
    ("already exists", Cause.INFRA),
    ("violates PodSecurity", Cause.CONFIG),
    ("denied the request", Cause.CONFIG),
    ("is invalid", Cause.CONFIG),
    ("is forbidden", Cause.CONFIG),
)
"""By what the API server told the operator when it wanted to make a pod or a service."""


def _of_refusals(events: Iterable[Event]) -> list[Wait]:
    refused = [
        each for each in events if each.warning and each.reason in ("FailedCreatePod", "FailedCreateService")
    ]
    if not refused:
        return []
    last = max(refused, key=lambda event: (event.at is not None, event.at, event.message))
    cause = next((cause for part, cause in REFUSALS if part in last.message), Cause.INFRA)
    return [
        Wait(
            stage=Stage.HELD,
            cause=cause,
            reason=last.reason,
            said=f"its pods cannot be made: {last.message}",
            since=last.at,
        )
    ]


def _of_placeholders(
    pods: Iterable[Pod], members: Sequence[Pod], exit_codes: Mapping[int, Cause]
) -> list[Wait]:
    """YuniKorn reserves with pods of its own, and only those are told why they wait."""
    own = {pod.name for pod in members}
    placeholders = [pod for pod in pods if pod.name.startswith("tg-") and pod.name not in own]
    waits = merged(wait for pod in placeholders if (wait := of_pod(pod, exit_codes)) is not None)
    if not waits:
        return []
    placed = sum(pod.placed for pod in placeholders)
    said = f"{placed} of {len(placeholders)} places are reserved; {waits[0].said}"
    return [structs.replace(waits[0], stage=Stage.UNPLACED, said=said, replicas=())]


def of_pod(pod: Pod, exit_codes: Mapping[int, Cause]) -> Wait | None:
    """What one pod waits for; None when it runs or has ended."""
    if pod.phase in ("Succeeded", "Failed") or pod.deleted is not None:
        return None
    if not pod.placed and pod.phase != "Running":
        return _of_unplaced(pod)
    for container in (*pod.init_containers, *pod.containers):
        if container.waiting:
            return _of_container(pod, container, exit_codes)
    if pod.phase == "Running":
        return None
    return Wait(
        stage=Stage.STARTING,
        cause=Cause.INFRA,
        reason="ContainerCreating",
        said=_PREPARED,
        replicas=(pod.replica,),
        since=_placed_at(pod),
    )


_PREPARED: Final = "placed; the image, the volumes and the network are being prepared"


def _of_unplaced(pod: Pod) -> Wait:
    condition = pod.scheduled
    if condition is None:
        return Wait(
            stage=Stage.UNPLACED,
            cause=Cause.UNSCHEDULABLE,
            reason="",
            said="no scheduler has looked at it yet",
            replicas=(pod.replica,),
            since=pod.created,
        )
    return Wait(
        stage=Stage.UNPLACED,
        cause=Cause.UNSCHEDULABLE,
        reason=condition.reason or "Unschedulable",
        said=unschedulable(condition.message),
        replicas=(pod.replica,),
        since=condition.since or pod.created,
    )


def unschedulable(message: str) -> str:
    """A scheduler's message, which resource and how many nodes first."""
    if gap := _GAP.search(message):
        lacking = [
            f"{int(value) * 10.0 ** int(scale):g} {name}" for name, value, scale in _GAP_ENTRY.findall(gap[1])
        ]
        if lacking:
            return f"the cluster lacks {', '.join(lacking)} for the whole gang"
    for says, said in _GANG:
        if found := says.search(message):
            return said.format(*found.groups())
    nodes = _NODES.search(message)
    if nodes is None:
        return message.strip() or "no node has been found"
    why = re.split(r"\.? {0,2}preemption:|\.(?:\s|$)", nodes[3], maxsplit=1)[0]
    return f"no node of {nodes[2]} fits: {'; '.join(_why(part) for part in why.split(', ') if part)}"


def _why(part: str) -> str:
    if lacking := _LACKING.match(part.strip()):
        return f"{lacking[1]} lack {lacking[2]}"
    if otherwise := _OTHERWISE.match(part.strip()):
        return f"{otherwise[1]} {otherwise[2]}"
    return part.strip()


CONTAINER_CAUSES: Final[Mapping[str, Cause]] = {
    "ErrImagePull": Cause.IMAGE,
    "ImagePullBackOff": Cause.IMAGE,
    "ErrImageNeverPull": Cause.IMAGE,
    "ImageInspectError": Cause.IMAGE,
    "RegistryUnavailable": Cause.IMAGE,
    "InvalidImageName": Cause.CONFIG,
    "CreateContainerConfigError": Cause.CONFIG,
    "CreateContainerError": Cause.CONFIG,
    "RunContainerError": Cause.CONFIG,
    "CrashLoopBackOff": Cause.USER_ERROR,
}
"""By the reason for which a container waits; the others are ordinary steps of starting."""


def _container_cause(container: Container, exit_codes: Mapping[int, Cause]) -> Cause:
    cause = CONTAINER_CAUSES.get(container.waiting, Cause.INFRA)
    made = container.waiting in ("CreateContainerError", "RunContainerError")
    if made and not deaths.is_hopeless(container.waiting_message):
        return Cause.INFRA
    if container.init and container.name == "init-pytorch":  # The operator's: it waits for the master's name.
        return Cause.INFRA
    if container.waiting == "CrashLoopBackOff" and container.last is not None:
        return deaths.cause_of_end(container.last, exit_codes)
    return cause


_STEPS: Final = {"ContainerCreating": _PREPARED, "PodInitializing": "its init containers run"}


def _of_container(pod: Pod, container: Container, exit_codes: Mapping[int, Cause]) -> Wait:
    cause = _container_cause(container, exit_codes)
    init = "init container " if container.init else ""
    name = f"{init}{container.name}" if init or container is not pod.primary else ""
    about = (
        f"image {container.image}"
        if cause is Cause.IMAGE or container.waiting == "InvalidImageName"
        else name
    )
    ended = container.last
    if container.waiting == "CrashLoopBackOff" and ended is not None:
        why = ended.reason if ended.reason != "Error" else ""
        said = f"ended {container.restarts} times, the last with exit code {ended.exit_code} {why}".rstrip()
    else:
        said = container.waiting_message or _STEPS.get(container.waiting, container.waiting)
    # An init container that fails again and again has never let the training begin.
    again = container.restarts > 0 and not container.init
    return Wait(
        stage=Stage.RESTARTING if again else Stage.STARTING,
        cause=cause,
        reason=container.waiting,
        said=f"{about}: {said}" if about else said,
        replicas=(pod.replica,),
        since=_placed_at(pod),
    )


def _placed_at(pod: Pod) -> datetime | None:
    placed = pod.scheduled.since if pod.scheduled is not None and pod.scheduled.true else None
    # Ready turns false when it stops being ready, which is when the trouble of a restarted one began.
    unready = pod.ready.since if pod.ready is not None and not pod.ready.true else None
    known = [each for each in (placed, unready, pod.started, pod.created) if each is not None]
    return max(known) if known else None


def merged(waits: Iterable[Wait]) -> list[Wait]:
    """Replicas that wait for the same are one wait, since the earliest; in the order of stages."""
    alike: dict[tuple[Stage, Cause, str, str], Wait] = {}
    for wait in waits:
        key = (wait.stage, wait.cause, wait.reason, wait.said)
        other = alike.get(key)
        alike[key] = wait if other is None else _both(other, wait)
    return sorted(alike.values(), key=_worst_first)


def _worst_first(wait: Wait) -> tuple[int, bool, int, str, str]:
    return wait.stage, not is_trouble(wait), -len(wait.replicas), wait.said, wait.reason


def is_trouble(wait: Wait) -> bool:
    """Whether somebody has said what keeps it, and it is no ordinary step of starting."""
    return bool(wait.reason) and wait.cause is not Cause.INFRA


def _both(one: Wait, other: Wait) -> Wait:
    known = [each for each in (one.since, other.since) if each is not None]
    since = min(known) if known else None
    return structs.replace(one, replicas=(*one.replicas, *other.replicas), since=since)


def longer_than(wait: Wait, patience: timedelta, now: datetime) -> bool:
    """Whether it has lasted for more than `patience`."""
    return wait.since is not None and now - wait.since > patience

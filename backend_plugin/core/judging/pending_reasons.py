"""Derives the reasons why replicas do not run, from the pod groups, pods and events of a job."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import structs

from backend_plugin.core.dialects.table import CREATION_FAILURES
from backend_plugin.core.job_conditions import SUSPENDED
from backend_plugin.core.judging import placeholders, terminations
from backend_plugin.core.judging.pending import (
    PendingReason,
    PendingStage,
    ResourceShortage,
    SchedulerMessage,
)
from backend_plugin.core.judging.terminations import ExitCodes
from backend_plugin.core.observed import Container, Event, Job, Observed, Pod, PodGroup, find_last_event
from backend_plugin.core.scheduling.gang_annotation import GangSummary
from backend_plugin.core.scheduling.registry import STATUS_PARSERS
from kfpytorch_common.causes import Cause

_NODES: Final = re.compile(r"(?<!\d)(\d{1,9})/(?=(\d{1,9}))\2 nodes are available: ?(.{0,2000})", re.DOTALL)
_LACKING: Final = re.compile(r"^(\d{1,9}) Insufficient ([\w./-]{1,253})$")
_OTHERWISE: Final = re.compile(r"^(\d{1,9}) node\(s\) (?=.)", re.DOTALL)


def list_job_reasons(
    observed: Observed, pods: Sequence[Pod], exit_codes: ExitCodes, gang: GangSummary
) -> list[PendingReason]:
    """Return the pending reasons of the job as a whole, starting with those of its pod groups."""
    # Pod groups and events may be outdated once all pods are bound.
    if _has_all_pods(observed, pods) and all(pod.is_bound for pod in pods if pod.deleted is None):
        return []
    groups = filter(None, map(_find_group_reason, observed.pod_groups))
    of_events = [wait for parser in STATUS_PARSERS for wait in parser.events(observed)]
    holders = placeholders.list_gang_reasons(
        observed, pods, lambda pod: find_pod_reason(pod, exit_codes), gang
    )
    return [*groups, *of_events, *list_creation_failures(observed, pods), *holders]


def _has_all_pods(observed: Observed, pods: Sequence[Pod]) -> bool:
    """True if no pod of the job is missing; False for a suspended job, whose pods will be deleted."""
    job = observed.job
    if job is None or _is_suspended(job):
        return False
    return len([pod for pod in pods if pod.deleted is None]) >= job.replicas


def _is_suspended(job: Job) -> bool:
    return any(condition.type == SUSPENDED and condition.true for condition in job.conditions)


def _find_group_reason(group: PodGroup) -> PendingReason | None:
    parsers = [each for each in STATUS_PARSERS if not group.foreign and group.api in ("", each.api)]
    return next((wait for each in parsers if (wait := each.group(group)) is not None), None)


REFUSALS: Final[Sequence[tuple[str, Cause]]] = (
    ("exceeded quota", Cause.QUOTA_EXCEEDED),
    ("failed calling webhook", Cause.SYSTEM_ERROR),
    ("already exists", Cause.SYSTEM_ERROR),
    ("violates PodSecurity", Cause.INVALID_CONFIG),
    ("denied the request", Cause.INVALID_CONFIG),
    ("is invalid", Cause.INVALID_CONFIG),
    ("is forbidden", Cause.INVALID_CONFIG),
)
"""The causes of a failed creation of a pod or service, by a part of the API server's error message."""


def list_creation_failures(observed: Observed, pods: Sequence[Pod]) -> list[PendingReason]:
    """Return a list with the pending reason for the last failed creation of a missing pod; may be empty."""
    job = observed.job
    if job is None or _is_suspended(job) or _has_all_pods(observed, pods):
        return []
    refused = [each for each in observed.events if each.warning and each.reason in CREATION_FAILURES]
    last = find_last_event([each for each in refused if not _is_outdated(each, job, pods)])
    if last is None:
        return []
    cause = next((cause for part, cause in REFUSALS if part in last.message), Cause.SYSTEM_ERROR)
    text = f"its pods cannot be created: {last.message}"
    return [PendingReason(stage=PendingStage.HELD, cause=cause, reason=last.reason, text=text, since=last.at)]


def _is_outdated(refusal: Event, job: Job, pods: Sequence[Pod]) -> bool:
    """True if, after this failed creation, a pod was created or all pods of the job first existed.

    False if the pods of the job have never all existed.
    """
    if job.started is None:
        return False
    if refusal.at is None:  # Without a time, assume that it precedes the existing pods.
        return bool(pods)
    return refusal.at < max([job.started, *(pod.created for pod in pods if pod.created is not None)])


def list_replica_reasons(
    observed: Observed, pods: Iterable[Pod], exit_codes: ExitCodes
) -> list[PendingReason]:
    """Return the pending reason of each replica.

    If a reason has no details, its text and shortages come from the last event that has them.
    """
    return [
        _with_event_details(pod, wait, observed.events)
        for pod in pods
        if (wait := find_pod_reason(pod, exit_codes)) is not None
    ]


def _with_event_details(pod: Pod, wait: PendingReason, events: Iterable[Event]) -> PendingReason:
    if not wait.is_unspecific:
        return wait
    # Ignore events of an earlier pod incarnation, which has the same name.
    own = [each for each in events if not (each.at and pod.created and each.at < pod.created)]
    event, parsed = placeholders.find_last_shortage(own, {pod.name}) or (None, None)
    if event is None or parsed is None or parsed.cause is None:
        return wait
    return structs.replace(
        wait,
        stage=placeholders.get_unbound_stage(parsed.cause),
        cause=parsed.cause,
        text=parsed.text,
        shortages=parsed.shortages,
        queue=parsed.queue,
        observed_at=event.message_at,
    )


def find_pod_reason(pod: Pod, exit_codes: ExitCodes) -> PendingReason | None:
    """Return the pending reason of a pod; None if its containers run, it has ended or is being deleted."""
    if pod.phase in ("Succeeded", "Failed") or pod.deleted is not None:
        return None
    if pod.phase != "Running" and not pod.is_bound:
        return _build_unbound_reason(pod)
    return _find_start_reason(pod, exit_codes)


def _find_start_reason(pod: Pod, exit_codes: ExitCodes) -> PendingReason | None:
    for container in pod.init_containers + pod.containers:
        if container.waiting:
            return _build_container_reason(pod, container, exit_codes)
    if pod.phase == "Running":
        return None
    return PendingReason(
        stage=PendingStage.STARTING,
        cause=Cause.SYSTEM_ERROR,
        reason="ContainerCreating",
        text=_PREPARED,
        replicas=(pod.replica,),
        since=_find_bound_time(pod),
    )


_CLAIM: Final = re.compile("unbound immediate PersistentVolumeClaims|persistentvolumeclaim ")
_CLAIM_REMEDY: Final = "its volume claims have the reason: see `kubectl describe persistentvolumeclaims`"
_PREPARED: Final = "placed; the image, the volumes and the network are being prepared"


def _build_unbound_reason(pod: Pod) -> PendingReason:
    condition = pod.scheduled
    if condition is None:
        return PendingReason(
            stage=PendingStage.UNPLACED,
            cause=Cause.UNSCHEDULABLE,
            reason="",
            text="no scheduler has handled it yet",
            replicas=(pod.replica,),
            since=pod.created,
        )
    parsed = parse_scheduler_message(condition.message)
    cause = parsed.cause or Cause.UNSCHEDULABLE
    return PendingReason(
        stage=placeholders.get_unbound_stage(cause),
        cause=cause,
        reason=condition.reason or "Unschedulable",
        text=parsed.text,
        replicas=(pod.replica,),
        since=condition.since or pod.created,
        shortages=parsed.shortages,
        queue=parsed.queue,
        of_gang=bool(parsed.shortages) and parsed.gang,
        is_unspecific=parsed.is_unspecific,
        follows=parsed.follows,
        short=parsed.short,
        remedy=_CLAIM_REMEDY if _CLAIM.search(condition.message) else "",
        raw=condition.message if parsed.text != condition.message.strip() else "",
    )


def parse_scheduler_message(message: str) -> SchedulerMessage:
    """Parse a message about an unbound pod: from a gang scheduler, or else from kube-scheduler."""
    parsed = (parser.message(message) for parser in STATUS_PARSERS)
    return next(filter(None, parsed), None) or format_unschedulable(message)


_UNHELPFUL: Final = re.compile(r"(?<!\d)(\d{1,9}) Preemption is not helpful for scheduling")
_NEVER: Final = "; no node has that much, even when it is empty"


def format_unschedulable(message: str) -> SchedulerMessage:
    """Return kube-scheduler's message in short form: each reason with the number of nodes that it concerns.

    The field `short` of the result contains the resources that nodes lack.
    """
    nodes = _NODES.search(message)
    if nodes is None:
        return SchedulerMessage(text=message.strip() or "no node has been found", gang=False)
    parts = _split_node_reasons(nodes[3])
    short = tuple(match[2] for part in parts if (match := _LACKING.match(part)))
    reasons = "; ".join(_OTHERWISE.sub(r"\1 ", _LACKING.sub(r"\1 lack \2", part)) for part in parts)
    never = _NEVER if _exceeds_capacity(nodes, parts) else ""
    text = f"no node of {nodes[2]} fits: {reasons}{never}"
    return SchedulerMessage(text=text, gang=False, short=short)


def _split_node_reasons(text: str) -> list[str]:
    why = f"{text.partition('preemption:')[0]} ".partition(". ")[0].strip()
    return [part.strip() for part in why.split(", ") if part]


def _exceeds_capacity(nodes: re.Match[str], parts: Sequence[str]) -> bool:
    # The request exceeds every node if preemption helps on none of them, and they lack only resources.
    unhelpful = _UNHELPFUL.search(nodes[3])
    is_everywhere = unhelpful is not None and unhelpful[1] == nodes[2]
    return is_everywhere and all(map(_LACKING.match, parts))


CONTAINER_CAUSES: Final[Mapping[str, Cause]] = {
    "ErrImagePull": Cause.IMAGE_PULL,
    "ImagePullBackOff": Cause.IMAGE_PULL,
    "ErrImageNeverPull": Cause.IMAGE_PULL,
    "ImageInspectError": Cause.IMAGE_PULL,
    "RegistryUnavailable": Cause.IMAGE_PULL,
    "InvalidImageName": Cause.INVALID_CONFIG,
    "CreateContainerConfigError": Cause.INVALID_CONFIG,
    "CreateContainerError": Cause.INVALID_CONFIG,
    "RunContainerError": Cause.INVALID_CONFIG,
    "CrashLoopBackOff": Cause.USER_ERROR,
}
"""The causes by the reason of a container's waiting state; other reasons are normal steps of its start."""


def _classify_waiting_container(container: Container, exit_codes: ExitCodes) -> Cause:
    made = container.waiting in ("CreateContainerError", "RunContainerError")
    if made and not terminations.is_permanent_start_error(container.waiting_message):
        return Cause.SYSTEM_ERROR
    if terminations.is_operator_container(container):
        return Cause.SYSTEM_ERROR
    if container.waiting == "CrashLoopBackOff" and container.last is not None:
        return terminations.classify_container_termination(container.last, exit_codes)
    return CONTAINER_CAUSES.get(container.waiting, Cause.SYSTEM_ERROR)


_STEPS: Final = {"ContainerCreating": _PREPARED, "PodInitializing": "its init containers are running"}


def _build_container_reason(pod: Pod, container: Container, exit_codes: ExitCodes) -> PendingReason:
    cause = _classify_waiting_container(container, exit_codes)
    subject = "" if container is pod.primary else container.name
    if cause is Cause.IMAGE_PULL or container.waiting == "InvalidImageName":
        subject = f"image {container.image}"
    elif container.init:
        subject = f"init container {container.name}"
    ended = container.last
    text = container.waiting_message or _STEPS.get(container.waiting, container.waiting)
    if container.waiting == "CrashLoopBackOff" and ended is not None:
        why = "" if ended.reason == "Error" else ended.reason
        text = f"ended {container.restarts} times, the last with exit code {ended.exit_code} {why}".rstrip()
    # A repeatedly failing init container means that the training has not begun.
    again = container.restarts > 0 and not container.init
    return PendingReason(
        stage=PendingStage.RESTARTING if again else PendingStage.STARTING,
        cause=cause,
        reason=container.waiting,
        text=f"{subject}: {text}" if subject else text,
        replicas=(pod.replica,),
        since=_find_bound_time(pod),
    )


def _find_bound_time(pod: Pod) -> datetime | None:
    placed = pod.scheduled.since if pod.scheduled is not None and pod.scheduled.true else None
    # The Ready condition becomes false when a restarted container fails.
    known = (placed, terminations.find_unready_time(pod), pod.started, pod.created)
    return max(filter(None, known), default=None)


def with_report_times(waits: list[PendingReason], events: Sequence[Event]) -> list[PendingReason]:
    """Return the pending reasons, each with the time of the newest event that reports its shortages.

    The condition of a pod keeps only the time of the first report. For a repeated event, the time of its
    first occurrence counts, because the event keeps the message of this occurrence. Replicas with the same
    resource shortages get the same time, so that one line of the message reports all of them.
    """
    latest: dict[tuple[ResourceShortage, ...], datetime] = {}
    for wait in waits if events else ():
        is_derived = any(shortage.counts_own for shortage in wait.shortages)
        alike = [event for event in events if is_derived and event.message == wait.raw]
        for at in (event.message_at for event in alike if event.message_at is not None):
            latest[wait.shortages] = max(at, latest.get(wait.shortages, at))
    if not latest:
        return waits
    return [structs.replace(wait, observed_at=latest.get(wait.shortages, wait.observed_at)) for wait in waits]


def merge_reasons(waits: Iterable[PendingReason]) -> list[PendingReason]:
    """Merge equal pending reasons into one, with the replicas of all of them and the earliest start time.

    The result is sorted by stage. In each stage, the reasons for which `is_blocking` is true come first.
    """
    alike: dict[tuple[PendingStage, Cause, str, str], list[PendingReason]] = {}
    for wait in waits:
        alike.setdefault((wait.stage, wait.cause, wait.reason, wait.text), []).append(wait)
    merged = [
        structs.replace(
            same[0],
            replicas=tuple([replica for wait in same for replica in wait.replicas]),
            since=min(filter(None, [wait.since for wait in same]), default=None),
        )
        for same in alike.values()
    ]
    return sorted(merged, key=_get_sort_key)


def _get_sort_key(wait: PendingReason) -> tuple[int, bool, bool, bool, int, str, str]:
    worry = (not is_blocking(wait), wait.follows, not wait.shortages)
    return (wait.stage, *worry, -len(wait.replicas), wait.text, wait.reason)


def is_blocking(wait: PendingReason) -> bool:
    """True if the cluster reports why replicas do not run, and this is not a normal step of a pod's start."""
    return bool(wait.reason) and wait.cause is not Cause.SYSTEM_ERROR

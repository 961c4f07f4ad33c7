"""The pending reason of a gang, from the placeholder pods with which its scheduler reserves capacity."""

from collections import Counter
from collections.abc import Callable, Container, Sequence

from msgspec import structs

from backend_plugin.core.judging.pending import (
    PendingReason,
    PendingStage,
    ResourceShortage,
    SchedulerMessage,
)
from backend_plugin.core.observed import Event, Observed, Pod
from backend_plugin.core.scheduling import registry
from backend_plugin.core.scheduling.gang_annotation import GangSummary
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import subtract_quantity


def list_gang_reasons(
    observed: Observed,
    members: Sequence[Pod],
    of_pod: Callable[[Pod], PendingReason | None],
    gang: GangSummary,
) -> list[PendingReason]:
    """Return the pending reason of a gang's placeholder pods, as a list; empty if none of them has one.

    `members` are the pods of the replicas. `of_pod` returns the pending reason of a pod; None if it has none.
    """
    own = {pod.name for pod in members}
    others = [pod for pod in observed.pods if pod.name not in own]
    holders = [pod for pod in others if pod.place or registry.is_placeholder_name(pod.name)]
    reasons = [wait for pod in holders if (wait := of_pod(pod)) is not None]
    if not reasons:
        return []
    # The sort key puts pods that wait for a Kubernetes node before pods that wait for something else.
    worst = min(reasons, key=lambda wait: (wait.stage, not wait.reason, wait.text))
    message = _read_gang_message(observed.events, holders, worst, gang)
    cause = message.cause or worst.cause
    return [
        PendingReason(
            stage=get_unbound_stage(cause),
            cause=cause,
            reason=worst.reason or "Unschedulable",
            text=message.text,
            replicas=tuple([pod.replica for pod in members if not pod.is_bound]),
            since=min(filter(None, [wait.since for wait in reasons]), default=None),
            shortages=message.shortages,
            queue=message.queue,
            of_gang=True,
            raw=worst.raw,
        )
    ]


def _read_gang_message(
    events: Sequence[Event], holders: Sequence[Pod], worst: PendingReason, gang: GangSummary
) -> SchedulerMessage:
    """Return the last message about resources that a placeholder pod lacks, else the message of `worst`."""
    unbound = {pod.name for pod in holders if not pod.is_bound}
    found = find_last_shortage(events, unbound)
    message = found[1] if found is not None else SchedulerMessage(text=worst.text if worst.reason else "")
    text = message.text or "their placeholder pods have no node yet"
    shortages: tuple[ResourceShortage, ...] = ()
    if unbound:
        text = f"waiting for {len(unbound)} of {len(holders)} places: {text}"
        shortages = _compute_gang_shortages(gang, holders, {each.resource for each in message.shortages})
    return structs.replace(message, text=text, shortages=shortages)


def get_unbound_stage(cause: Cause) -> PendingStage:
    """Return the stage of an unbound pod: `HELD` if it waits for a queue, otherwise `UNPLACED`."""
    return PendingStage.HELD if cause is Cause.QUEUE else PendingStage.UNPLACED


def find_last_shortage(
    events: Sequence[Event], waiting: Container[str]
) -> tuple[Event, SchedulerMessage] | None:
    """Return the last event that reports missing resources for a waiting pod, and its parsed message.

    `waiting` contains the names of the waiting pods. Return None if there is no such event.
    """
    about = (event for event in reversed(events) if event.name in waiting)
    parsed = ((event, parser.message(event.message)) for event in about for parser in registry.STATUS_PARSERS)
    return next(((event, text) for event, text in parsed if text is not None and text.shortages), None)


def _compute_gang_shortages(
    gang: GangSummary, holders: Sequence[Pod], short: set[str]
) -> tuple[ResourceShortage, ...]:
    """Return the resource shortages of the whole gang: its total request minus the capacity that it holds.

    `holders` are its placeholder pods; those with a node hold capacity. If `short`, the names of the missing
    resources, is empty, compare all resources that the gang requests. Devices, such as GPUs, come first.
    """
    asked_for = {name for role in gang.roles for name in role.requests}
    placed = Counter(pod.place for pod in holders if pod.is_bound)
    bound = {role.name: placed[role.name] for role in gang.roles}
    shortages = []
    for resource in sorted(short or asked_for, key=lambda name: ("/" not in name, name)):
        requested, held_amount = gang.compute_total(resource), gang.compute_amount(bound, resource)
        if requested is not None and held_amount is not None and held_amount < requested:
            missing = subtract_quantity(requested, held_amount)
            shortages.append(
                ResourceShortage(resource=resource, missing=missing, requested=requested, held=held_amount)
            )
    return tuple(shortages)

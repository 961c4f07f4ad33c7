"""The pending reason of a gang from its placeholder pods, which often are the only pods that report one."""

from collections import Counter
from collections.abc import Callable, Container, Sequence

from backend_plugin.core.observed import Event, Observed, Pod
from backend_plugin.core.pending import PendingReason, PendingStage, ResourceShortage, SchedulerMessage
from backend_plugin.core.quantity import subtract_quantity
from backend_plugin.core.scheduling import gang_annotation, registry
from backend_plugin.core.scheduling.gang_annotation import GangSummary
from kfpytorch_common.causes import Cause


def list_gang_reasons(
    observed: Observed, members: Sequence[Pod], of_pod: Callable[[Pod], PendingReason | None]
) -> list[PendingReason]:
    """Return the pending reason of the gang that its placeholder pods report; at most one."""
    own = {pod.name for pod in members}
    holders = [pod for pod in observed.pods if pod.name not in own and _is_placeholder(pod)]
    reasons = [(pod, wait) for pod in holders if (wait := of_pod(pod)) is not None]
    if not reasons:
        return []
    gang = (
        gang_annotation.read_gang_summary(observed.job.annotations)
        if observed.job is not None
        else gang_annotation.NOBODY
    )
    missing = sum(not pod.is_bound for pod in holders)
    # The sort key puts pods that wait for a Kubernetes node before pods that wait for something else.
    worst = min((wait for _, wait in reasons), key=lambda wait: (wait.stage, not wait.reason, wait.text))
    _, parsed = find_last_shortage(observed.events, {pod.name for pod in holders if not pod.is_bound}) or (
        None,
        SchedulerMessage(text=worst.text if worst.reason else ""),
    )
    cause = parsed.cause or worst.cause
    text = parsed.text or "their placeholder pods have no node yet"
    return [
        PendingReason(
            stage=PendingStage.HELD if cause is Cause.QUEUE else PendingStage.UNPLACED,
            cause=cause,
            reason=worst.reason or "Unschedulable",
            text=f"waiting for {missing} of {len(holders)} places: {text}" if missing else text,
            replicas=tuple(pod.replica for pod in members if not pod.is_bound),
            since=min((wait.since for _, wait in reasons if wait.since is not None), default=None),
            shortages=_compute_gang_shortages(
                gang, holders, {shortage.resource for shortage in parsed.shortages}
            )
            if missing
            else (),
            queue=parsed.queue,
            of_gang=True,
            raw=worst.raw,
        )
    ]


def _is_placeholder(pod: Pod) -> bool:
    return bool(pod.place) or registry.is_placeholder_name(pod.name)


def find_last_shortage(
    events: Sequence[Event], waiting: Container[str]
) -> tuple[Event, SchedulerMessage] | None:
    """Return the last event about one of the `waiting` pods that names missing resources, and its message."""
    for event in reversed(events):
        if event.name in waiting:
            for words in registry.WORDS:
                if (parsed := words.message(event.message)) is not None and parsed.shortages:
                    return event, parsed
    return None


def _compute_gang_shortages(
    gang: GangSummary, holders: Sequence[Pod], short: set[str]
) -> tuple[ResourceShortage, ...]:
    """Return the resource shortages of the whole gang: its total request minus the capacity that it holds.

    If no message names a missing resource, each one that the gang requests may be short. Devices come first.
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

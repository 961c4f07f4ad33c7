"""Pods with which a gang scheduler holds places until all are found: often only they are told why they wait.

Lives here: what they wait for, as what the gang waits for. Does not: a scheduler's words for it.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence

from backend_plugin.core.observed import Event, Observed, Pod
from backend_plugin.core.quantity import difference
from backend_plugin.core.scheduling import asks, table
from backend_plugin.core.scheduling.asks import Asks
from backend_plugin.core.waits import Lack, Said, Stage, Wait
from kfpytorch_common.causes import Cause


def waits(observed: Observed, members: Sequence[Pod], of_pod: Callable[[Pod], Wait | None]) -> list[Wait]:
    """What the gang waits for, as far as the holders of its places say; one wait at most."""
    own = {pod.name for pod in members}
    held = [pod for pod in observed.pods if pod.name not in own and _is_holder(pod)]
    told = [(pod, wait) for pod in held if (wait := of_pod(pod)) is not None]
    if not told:
        return []
    gang = asks.of(observed.job.annotations) if observed.job is not None else asks.NOBODY
    missing = sum(not pod.placed for pod in held)
    # Of those that wait for a node, unless all have one and wait for something else.
    worst = min((wait for _, wait in told), key=lambda wait: (wait.stage, not wait.reason, wait.said))
    said = told_last(observed.events, {pod.name for pod in held if not pod.placed}) or Said(
        said=worst.said if worst.reason else ""
    )
    cause = said.cause or worst.cause
    told_by = said.said or "their pods have no node yet"
    return [
        Wait(
            stage=Stage.HELD if cause is Cause.QUEUE else Stage.UNPLACED,
            cause=cause,
            reason=worst.reason or "Unschedulable",
            said=f"waiting for {missing} of {len(held)} places: {told_by}" if missing else told_by,
            replicas=tuple(pod.replica for pod in members if not pod.placed),
            since=min((wait.since for _, wait in told if wait.since is not None), default=None),
            lacks=_of_gang(gang, held, {lack.resource for lack in said.lacks}) if missing else (),
            queue=said.queue,
            whole=True,
            raw=worst.raw,
        )
    ]


def _is_holder(pod: Pod) -> bool:
    return bool(pod.place) or table.is_place(pod.name)


def told_last(events: Sequence[Event], waiting: Container[str]) -> Said | None:
    """What was said last to one of those that wait, with the resources that are short."""
    for event in reversed(events):
        if event.name in waiting:
            for words in table.WORDS:
                if (said := words.message(event.message)) is not None and said.lacks:
                    return said
    return None


def _of_gang(gang: Asks, held: Sequence[Pod], short: set[str]) -> tuple[Lack, ...]:
    """Each holder is told of itself; the gang asks for all that its members ask for, and has what is held.

    Where nobody has said what is short, it is the devices that are told of: those are what people wait for.
    """
    devices = {name for role in gang.roles for name in role.requests if "/" in name}
    placed = Counter(pod.place for pod in held if pod.placed)
    there = {role.name: placed[role.name] for role in gang.roles}
    found = []
    for resource in sorted(short or devices):
        asked, kept = gang.amount(resource), gang.of(there, resource)
        if asked is not None and kept is not None and kept < asked:
            missing = difference(asked, kept)
            found.append(Lack(resource=resource, missing=missing, asked=asked, held=kept))
    return tuple(found)

"""The pending reason of a gang from its placeholder pods, which often are the only pods that report one."""

from collections import Counter
from collections.abc import Callable, Container, Sequence

from backend_plugin.core.observed import Event, Observed, Pod
from backend_plugin.core.quantity import difference
from backend_plugin.core.scheduling import asks, table
from backend_plugin.core.scheduling.asks import Asks
from backend_plugin.core.waits import Lack, Said, Stage, Wait
from kfpytorch_common.causes import Cause


def waits(observed: Observed, members: Sequence[Pod], of_pod: Callable[[Pod], Wait | None]) -> list[Wait]:
    """Return the pending reason of the gang that its placeholder pods report; at most one."""
    own = {pod.name for pod in members}
    held = [pod for pod in observed.pods if pod.name not in own and _is_holder(pod)]
    told = [(pod, wait) for pod in held if (wait := of_pod(pod)) is not None]
    if not told:
        return []
    gang = asks.of(observed.job.annotations) if observed.job is not None else asks.NOBODY
    missing = sum(not pod.placed for pod in held)
    # The sort key puts pods that wait for a Kubernetes node before pods that wait for something else.
    worst = min((wait for _, wait in told), key=lambda wait: (wait.stage, not wait.reason, wait.said))
    said = told_last(observed.events, {pod.name for pod in held if not pod.placed}) or Said(
        said=worst.said if worst.reason else ""
    )
    cause = said.cause or worst.cause
    told_by = said.said or "their placeholder pods have no node yet"
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
    """Return the last event message about one of the `waiting` pods that names missing resources."""
    for event in reversed(events):
        if event.name in waiting:
            for words in table.WORDS:
                if (said := words.message(event.message)) is not None and said.lacks:
                    return said
    return None


def _of_gang(gang: Asks, held: Sequence[Pod], short: set[str]) -> tuple[Lack, ...]:
    """Return the resource shortages of the whole gang: its total request minus the capacity that it holds.

    If no message names a missing resource, each one that the gang requests may be short. Devices come first.
    """
    asked_for = {name for role in gang.roles for name in role.requests}
    placed = Counter(pod.place for pod in held if pod.placed)
    there = {role.name: placed[role.name] for role in gang.roles}
    found = []
    for resource in sorted(short or asked_for, key=lambda name: ("/" not in name, name)):
        asked, kept = gang.amount(resource), gang.of(there, resource)
        if asked is not None and kept is not None and kept < asked:
            missing = difference(asked, kept)
            found.append(Lack(resource=resource, missing=missing, asked=asked, held=kept))
    return tuple(found)

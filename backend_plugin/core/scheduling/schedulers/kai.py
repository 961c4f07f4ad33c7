"""The adapter for the KAI scheduler, which groups the pods of a PyTorchJob itself.

Labels of the job specify its queue and priority, and its scheduling policy specifies the minimum.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from backend_plugin.core.conditions import Limit
from backend_plugin.core.observed import Observed, PodGroup
from backend_plugin.core.quantity import Quantity, difference
from backend_plugin.core.scheduling.adapter import (
    MIN_MEMBER,
    QUEUE,
    SCHEDULER_NAME,
    Adapter,
    Marks,
    QueueKind,
    Rank,
    Seen,
    Sighting,
)
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.gang import Gang
from backend_plugin.core.scheduling.operated import lacks
from backend_plugin.core.scheduling.words import Words, amount
from backend_plugin.core.waits import Lack, Said, Stage, Wait
from kfpytorch_common.causes import Cause

_PREFIX: Final = "kai.scheduler/"
_API: Final = "scheduling.run.ai"


def _marks(gang: Gang) -> Marks:
    labels = {f"{_PREFIX}queue": gang.queue, "priorityClassName": gang.priority_class_name}
    return Marks(
        job_labels={key: value for key, value in labels.items() if value},
        run_policy={"schedulingPolicy": {"minAvailable": gang.min_member}},
        scheduler_name=gang.scheduler_name,
    )


def _queue(found: Findings, queue: str) -> Seen | None:
    known = found.queues.get("kai")
    if not found.has_api(_API) or not queue or (known is not None and queue not in known):
        return None
    return Seen(why=f"the cluster has {_API}, and the queue is {queue}")


# ---- status parser


_MISSING: Final = re.compile(
    r"Waiting for (\d{1,9}) pods for SubGroup ([\w.-]{1,63}), currently (\d{1,9}) exist"
)
_QUEUES: Final = {"OverLimit", "NonPreemptibleOverQuota", "PreemptionDelayNotElapsed", "QueueDoesNotExist"}


def _message(message: str) -> Said | None:
    found = _MISSING.search(message)
    return found and Said(said=f"{found[3]} of the {found[1]} pods of {found[2]} exist")


def _of_group(group: PodGroup) -> Wait | None:
    """Return the pending reason with the most severe numbers, of those that the pod group contains."""
    told = [(limit, _never(limit), tuple(_lacks(limit))) for limit in group.limits]
    if not told:
        return None
    limit, never, lacks = max(told, key=lambda each: (bool(each[1]), bool(each[2])))
    is_queue = limit.reason in _QUEUES
    unknown = limit.reason == "QueueDoesNotExist"
    return Wait(
        stage=Stage.HELD if is_queue else Stage.UNPLACED,
        cause=Cause.CONFIG if unknown else Cause.QUEUE if is_queue else Cause.UNSCHEDULABLE,
        reason=limit.reason or "Unschedulable",
        said=never or limit.message or limit.reason,
        since=group.created,
        lacks=() if never else lacks,
        queue=limit.queue or group.queue,
        never=bool(never),
        raw=limit.message,
    )


def _never(limit: Limit) -> str:
    """Return the reason why the request can never be met; empty if it may be met."""
    if limit.reason != "OverLimit":
        return ""
    for resource, asked, most in _bounds(limit):
        if most < asked:
            return f"it requests {asked.text} {resource}, and the limit of its queue is {most.text}"
    return ""


def _bounds(limit: Limit) -> Iterator[tuple[str, Quantity, Quantity]]:
    """Yield each limited resource with its requested amount and its maximum."""
    for resource, said in sorted(limit.asked.items()):
        asked, most = amount(resource, said), amount(resource, limit.limit.get(resource, ""))
        # A negative number means unlimited.
        if asked is not None and most is not None and most.nano >= 0:
            yield resource, asked, most


def _lacks(limit: Limit) -> Iterator[Lack]:
    for resource, asked, most in _bounds(limit):
        used = amount(resource, limit.used.get(resource, "0"))
        if used is not None and (free := difference(most, used)) < asked:
            yield Lack(resource=resource, missing=difference(asked, free), asked=asked, free=free)


def _of_events(observed: Observed) -> Iterable[Wait]:
    """Yield the pending reason from an event: KAI reports in events only that pods are missing."""
    if any(group.limits for group in observed.pod_groups):
        return
    told = [each for each in observed.events if each.reason == "NotReady" and each.kind == "PodGroup"]
    for event in told[-1:]:
        if (said := _message(event.message)) is not None:
            yield Wait(
                stage=Stage.UNPLACED,
                cause=Cause.UNSCHEDULABLE,
                reason=event.reason,
                said=said.said,
                since=event.at,
                raw=event.message,
            )


STYLES: Final = {
    "": Adapter(
        marks=_marks,
        scheduler_name="kai-scheduler",
        understands=frozenset({QUEUE, MIN_MEMBER, SCHEDULER_NAME}),
        words=Words(
            api=_API,
            message=_message,
            group=_of_group,
            events=_of_events,
            groups=re.compile(r"pg-(?P<job>.{1,253})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ),
        keys=(_PREFIX,),
        sighting=Sighting(rank=Rank.QUEUE, sees=_queue),
        denied=lacks(_API),
        queues=QueueKind(group=_API, plural="queues"),
    ),
}

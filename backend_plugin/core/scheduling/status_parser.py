"""The functions by which an adapter interprets the messages, events and pod groups of its scheduler."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.judging.pending import JobWarning, PendingReason, SchedulerMessage
from backend_plugin.core.observed import Event, Observed, PodGroup
from backend_plugin.core.values import Manifest
from kfpytorch_common.quantity import InvalidQuantity, Quantity, add_quantities, parse, with_binary_suffix


def list_events(observed: Observed, kind: str, reason: str) -> list[Event]:
    """Return the events with the given reason about objects of the given kind."""
    return [each for each in observed.events if each.reason == reason and each.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusParser:
    """The functions and patterns that parse messages and objects of one scheduler, and ignore all others."""

    api: str = ""
    """The API group of the scheduler's pod groups."""
    message: Callable[[str], SchedulerMessage | None] = lambda _: None
    """Parse the message of an unscheduled pod, or of an event about such a pod; None for other messages."""
    group: Callable[[PodGroup], PendingReason | None] = lambda _: None
    """Return the pending reason that a pod group shows; None if it shows none."""
    events: Callable[[Observed], Iterable[PendingReason]] = lambda _: ()
    """Yield the pending reasons that only events or pods show."""
    notes: Callable[[Observed], Iterable[JobWarning]] = lambda _: ()
    """Yield the warnings that events or pod groups show."""
    places: re.Pattern[str] | None = None
    """A pattern for the names of the scheduler's placeholder pods; None if it creates none."""
    queued: Callable[[PodGroup], bool] = lambda _: False
    """True if the pod group waits in an ordered queue, so that it has a position."""
    deactivation: Manifest | None = None
    """The patch of a pod group that stops its queue from resuming the job; None if no queue resumes jobs."""
    controlled: bool = False
    """True if a controller, not the scheduler, writes the status of pod groups."""
    groups: re.Pattern[str] | None = None
    """A pattern for the names of pod groups, with the job name as group ``job``.

    The field is None if a pod group has the name of its job.
    """


_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
# A larger amount exceeds any cluster, so it is a mistake and not useful in a message.
_MOST: Final = 2**63 * 10**9


def parse_amount(resource: str, text: str) -> Quantity | None:
    """Parse an amount of a resource in a scheduler's message; None if it is invalid.

    The text of an amount of memory or storage gets a binary suffix, such as ``16Gi``.
    """
    amount = parse_bounded(text)
    if amount is None:
        return None
    return with_binary_suffix(amount) if resource.startswith(_BYTES) else add_quantities([amount])


def parse_bounded(text: str) -> Quantity | None:
    """Return the parsed quantity; None if it is invalid, or larger than the capacity of any real cluster."""
    try:
        amount = parse(text)
    except InvalidQuantity:
        return None
    return amount if abs(amount.nano) <= _MOST else None

"""The functions by which an adapter interprets the messages, events and pod groups of its scheduler."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.observed import Observed, PodGroup
from backend_plugin.core.pending import JobWarning, PendingReason, SchedulerMessage
from backend_plugin.core.quantity import InvalidQuantity, Quantity, add_quantities, parse, with_binary_suffix
from backend_plugin.core.values import Manifest


def ignore_message(_: str) -> SchedulerMessage | None:
    """Return None: no message is from this scheduler."""
    return None


def ignore_group(_: PodGroup) -> PendingReason | None:
    """Return None: the pod groups of this scheduler contain no pending reason."""
    return None


def ignore_queue(_: PodGroup) -> bool:
    """Return False: the pod groups of this scheduler do not stand in a queue with a position."""
    return False


def ignore_events(_: Observed) -> Iterable[PendingReason]:
    """Return no pending reasons: the events of this scheduler contain none."""
    return ()


def ignore_warnings(_: Observed) -> Iterable[JobWarning]:
    """Return no warnings: this scheduler reports all that it does."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusParser:
    """The status parser of one scheduler. The functions ignore messages and objects of other schedulers."""

    api: str = ""
    """The API group of its pod groups."""
    message: Callable[[str], SchedulerMessage | None] = ignore_message
    """Parse the message of an unscheduled pod, or of an event about one."""
    group: Callable[[PodGroup], PendingReason | None] = ignore_group
    events: Callable[[Observed], Iterable[PendingReason]] = ignore_events
    notes: Callable[[Observed], Iterable[JobWarning]] = ignore_warnings
    """Yield the warnings that events or pod groups show."""
    places: re.Pattern[str] | None = None
    """A pattern for the names of its placeholder pods."""
    queued: Callable[[PodGroup], bool] = ignore_queue
    """True if the pod group stands in a queue and has a position in it."""
    deactivation: Manifest | None = None
    """The patch of a pod group after which its queue does not resume the job; None if it resumes no job."""
    controlled: bool = False
    """True if a controller writes the pod groups, so that they do not show that the scheduler runs."""
    groups: re.Pattern[str] | None = None
    """A pattern for the names of its pod groups, with the job name as group ``job``; None if they are equal.
    """


_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
# Larger than any cluster: a mistake, and not useful in a message.
_MOST: Final = 2**63 * 10**9


def parse_amount(resource: str, text: str) -> Quantity | None:
    """Return an amount that a scheduler wrote, with a byte suffix for memory; None if it is invalid."""
    amount = parse_bounded(text)
    if amount is None:
        return None
    return with_binary_suffix(amount) if resource.startswith(_BYTES) else add_quantities([amount])


def parse_bounded(text: str) -> Quantity | None:
    """Return the parsed amount; None if it is not a quantity or is larger than any cluster."""
    try:
        amount = parse(text)
    except InvalidQuantity:
        return None
    return amount if abs(amount.nano) <= _MOST else None

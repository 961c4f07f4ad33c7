"""The sentence on the resources that a job waits for."""

from collections.abc import Iterator, Mapping, Sequence

from backend_plugin.core.pending import PendingReason, ResourceShortage
from backend_plugin.core.quantity import subtract_quantity
from backend_plugin.core.scheduling.gang_annotation import GangSummary


def format_sentence(wait: PendingReason, asks: GangSummary, placed: Mapping[str, int]) -> str:
    """Return ``waiting for 4 nvidia.com/gpu in queue team-a: 8 requested, 4 free; 2 jobs ahead``."""
    queue = wait.queue or (asks.queue if wait.lacks else "")
    where = f" in queue {queue}" if queue else " in the cluster" if wait.lacks else ""
    ahead = _format_queue_position(wait.ahead)
    if not wait.lacks:
        said = f"{wait.said}{_format_replica_request(wait, asks)}"
        return f"{f'queue {queue}: ' if queue else ''}{wait.again}{said}{ahead}"
    at = f" at {wait.observed_at:%H:%M:%S} UTC" if wait.observed_at is not None else ""
    counted = [
        (_format_missing(lack), ", ".join(_iter_numbers(lack, asks, placed, at))) for lack in wait.lacks
    ]
    if len(counted) == 1:
        ((lead, numbers),) = counted
        said = f"waiting for {lead}{where}{f': {numbers}' if numbers else ''}"
    else:
        leads = (f"{lead} ({numbers})" if numbers else lead for lead, numbers in counted)
        said = f"waiting for {_join_with_and([*leads])}{where}"
    return f"{wait.again}{said}{ahead}"


def _format_replica_request(wait: PendingReason, asks: GangSummary) -> str:
    """Return the request of one replica for the resources of which the nodes have too little."""
    role = wait.replicas[0].rpartition("-")[0] if wait.replicas else ""
    amounts = [(asks.compute_amount({role: 1}, resource), resource) for resource in wait.short]
    asked = [f"{amount.text} {resource}" for amount, resource in amounts if amount is not None]
    return f" (requested: {_join_with_and(asked) if len(asked) > 1 else asked[0]})" if asked else ""


def _format_missing(lack: ResourceShortage) -> str:
    return lack.resource if lack.missing is None else f"{lack.missing.text} {lack.resource}"


def _iter_numbers(
    lack: ResourceShortage, asks: GangSummary, placed: Mapping[str, int], at: str
) -> Iterator[str]:
    """Yield the requested, held and free amounts; `at` is the time of the free amount."""
    asked = lack.asked or asks.compute_total(lack.resource, counts_all=lack.counts_all)
    if asked is None:
        return
    yield f"{asked.text} requested"
    if lack.held is not None:
        yield f"{lack.held.text} held"
        return
    counted = lack.asked or asks.compute_total(lack.resource, lack.upto, counts_all=lack.counts_all)
    free = lack.free
    if free is None and lack.missing is not None and counted is not None:
        free = subtract_quantity(counted, lack.missing)
        own = asks.compute_amount(placed, lack.resource) if lack.counts_own else None
        if own is not None and own.nano > 0:
            yield f"{own.text} held"
            free = subtract_quantity(free, own)
            if not free.nano:
                return
    if free is not None and free.nano >= 0:
        yield f"{free.text} free{at}"


def _format_queue_position(count: int | None) -> str:
    if count is None:
        return ""
    return "; next in its queue" if not count else f"; {count} job{'s' if count > 1 else ''} ahead"


def _join_with_and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]])

"""The sentence on the resources that a job waits for."""

from collections.abc import Iterator, Mapping, Sequence

from backend_plugin.core.judging.pending import PendingReason, ResourceShortage
from backend_plugin.core.scheduling.gang_annotation import GangSummary
from kfpytorch_common.quantity import Quantity, subtract_quantity


def format_sentence(wait: PendingReason, gang: GangSummary, placed: Mapping[str, int]) -> str:
    """Return the sentence that states what a job waits for.

    `placed` is the number of replicas of each role that hold resources of a node. An example:
    ``waiting for 4 nvidia.com/gpu in queue team-a: 8 requested, 4 free; 2 jobs ahead``.
    """
    ahead = _format_queue_position(wait.ahead)
    if not wait.shortages:
        holder = f"queue {wait.queue}: " if wait.queue else ""
        return f"{holder}{wait.again}{wait.text}{_format_replica_request(wait, gang)}{ahead}"
    # With `counts_own`, the scheduler compares the request with the nodes, not with the quota of a queue.
    of_nodes = any(shortage.counts_own for shortage in wait.shortages)
    queue = wait.queue or ("" if of_nodes else gang.queue)
    where = f" in queue {queue}" if queue else " in the cluster"
    at = f" at {wait.observed_at:%H:%M:%S} UTC" if wait.observed_at is not None else ""
    counted = [
        (
            f"{shortage.missing.text} {shortage.resource}" if shortage.missing else shortage.resource,
            ", ".join(_iter_numbers(shortage, gang, placed, at)),
        )
        for shortage in wait.shortages
    ]
    if len(counted) == 1:
        ((lead, numbers),) = counted
        text = f"waiting for {lead}{where}{f': {numbers}' if numbers else ''}"
    else:
        leads = (f"{lead} ({numbers})" if numbers else lead for lead, numbers in counted)
        text = f"waiting for {_join_with_and([*leads])}{where}"
    return f"{wait.again}{text}{ahead}"


def _format_replica_request(wait: PendingReason, gang: GangSummary) -> str:
    """Return a text on how much one replica requests of each resource that the nodes lack; may be empty."""
    if not wait.short:
        return ""
    role = wait.replicas[0].rpartition("-")[0] if wait.replicas else ""
    amounts = [(gang.compute_amount({role: 1}, resource), resource) for resource in wait.short]
    texts = [f"{amount.text} {resource}" for amount, resource in amounts if amount is not None]
    return f" (requested: {_join_with_and(texts)})" if texts else ""


def _iter_numbers(
    shortage: ResourceShortage, gang: GangSummary, placed: Mapping[str, int], at: str
) -> Iterator[str]:
    """Yield the known amounts, such as ``8 requested``; `at` is a suffix with the time of the free amount."""
    requested = _compute_requested(shortage, gang)
    if requested is None:
        return
    yield f"{requested.text} requested"
    held, free = shortage.held, None
    if held is None:
        held, free = _compute_held_and_free(shortage, gang, placed)
    if held is not None:
        yield f"{held.text} held"
    if free is not None and free.nano >= 0:
        yield f"{free.text} free{at}"


def _compute_requested(shortage: ResourceShortage, gang: GangSummary, *, upto: str = "") -> Quantity | None:
    """Return how much all roles of the gang request, or those up to and including `upto`; None if unknown."""
    return shortage.requested or gang.compute_total(shortage.resource, upto, counts_all=shortage.counts_all)


def _compute_held_and_free(
    shortage: ResourceShortage, gang: GangSummary, placed: Mapping[str, int]
) -> tuple[Quantity | None, Quantity | None]:
    """Return the held and the free amount of a resource; None for an amount that the message omits.

    The message omits unknown amounts. It states what the gang holds only if the scheduler counts the held
    amount as free, and does not report the free amount.
    """
    resource, missing = shortage.resource, shortage.missing
    counted = _compute_requested(shortage, gang, upto=shortage.last_role)
    is_known = not (shortage.counts_all and gang.has_unknown_requests)
    if shortage.free is not None or missing is None or counted is None or not is_known:
        return None, shortage.free
    free = subtract_quantity(counted, missing)
    own = gang.compute_amount(placed, resource) if shortage.counts_own else None
    if own is None or own.nano <= 0:
        return None, free
    return own, subtract_quantity(free, own) or None


def _format_queue_position(count: int | None) -> str:
    if count is None:
        return ""
    return "; next in its queue" if not count else f"; {count} job{'s' if count > 1 else ''} ahead"


def _join_with_and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))

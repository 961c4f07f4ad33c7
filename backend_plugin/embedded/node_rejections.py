"""The kubelet's own checks of a pod that was created with a node name. Pure.

Pods that the scheduler places are checked in `scheduling_cycle`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from backend_plugin.embedded.resources import GPU, ONE, PODS, Amounts, add_amounts
from backend_plugin.embedded.scheduling_cycle import Binding, NodeInfo, PodInfo

# The kubelet checks resources in this order and reports the first shortage. Other resources follow.
_FIRST: Final = (PODS, "cpu", "memory", "ephemeral-storage")
# The kubelet reports CPU in thousandths and other resources in whole units.
_MILLI: Final = ONE // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The rejection of a pod by the kubelet. The pod fails with this reason and message."""

    reason: str
    message: str


def decide_admission(claim: PodInfo, node: NodeInfo, there: Iterable[PodInfo]) -> Binding | Rejection:
    """Return the kubelet's decision on a pod that was created on `node`.

    Args:
        claim: The pod.
        node: The node that the pod names.
        there: The pods that the node has already accepted.
    """
    used: Amounts = {}
    taken: set[int] = set()
    for each in there:
        used = add_amounts(used, each.requests)
        taken.update(each.gpus)
    lacking = _find_shortage(claim, node, used)
    if lacking is not None:
        return lacking
    if not claim.wishes.is_match(node.name, node.labels):
        return _build_predicate_failure("NodeAffinity")
    if claim.wishes.find_untolerated_taint([each for each in node.taints if each.effect == "NoExecute"]):
        return _build_predicate_failure("TaintToleration")
    free = [each for each in node.gpus if each not in taken]
    return Binding(uid=claim.uid, node=node.name, gpus=free[: claim.requests.get(GPU, 0) // ONE])


def _find_shortage(claim: PodInfo, node: NodeInfo, used: Amounts) -> Rejection | None:
    has = node.allocatable
    # The kubelet ignores resources that its node does not list, because they may be cluster-level resources.
    asked = [
        each for each, amount in claim.requests.items() if amount > 0 and (each in _FIRST or each in has)
    ]
    for resource in sorted(asked, key=lambda each: _FIRST.index(each) if each in _FIRST else len(_FIRST)):
        amounts = (claim.requests[resource], used.get(resource, 0), has.get(resource, 0))
        if amounts[0] > amounts[2] - amounts[1]:
            unit = _MILLI if resource == "cpu" else ONE
            requested, taken, capacity = (each // unit for each in amounts)
            said = f"requested: {requested}, used: {taken}, capacity: {capacity}"
            message = f"Node didn't have enough resource: {resource}, {said}"
            return Rejection(reason=f"OutOf{resource}", message=message)
    return None


def _build_predicate_failure(predicate: str) -> Rejection:
    return Rejection(reason=predicate, message=f"Predicate {predicate} failed")

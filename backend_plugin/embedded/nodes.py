"""The scheduling algorithm: assigns pods to nodes as kube-scheduler does, with its messages. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.reading import entries, number, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.node_affinity import Taint, Wishes, read_taints, read_wishes
from backend_plugin.embedded.objects import annotation_of, name_of, node_of, uid_of
from backend_plugin.embedded.resources import GPU, ONE, PODS, Amounts, amounts, gpus, plus, requests

GPU_INDICES: Final = "kfpytorch.flyte.org/gpus"
"""The annotation with the GPUs of a node or pod, as indices on this machine: ``0,1``."""

# Resources that determine the score of a node. A node without one of them is scored by the others.
_SCORED: Final = ("cpu", "memory", GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, as input of the scheduler."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    schedulable: bool = True
    gpus: Sequence[int] = ()
    """GPU indices on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A pod, as input of the scheduler."""

    uid: str
    wishes: Wishes
    requests: Amounts
    priority: int = 0
    preempts: bool = True
    gated: bool = False
    """The pod has scheduling gates, so it is not scheduled."""
    node: str = ""
    """The node that the pod is bound to; empty before it is bound."""
    gpus: Sequence[int] = ()
    """The GPUs that the pod was assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The decision to bind a pod to a node."""

    uid: str
    node: str
    gpus: Sequence[int] | None = None
    """The assigned GPUs; None if the node has no GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """The decision that a pod cannot be scheduled now."""

    uid: str
    reason: str
    """The reason of the PodScheduled condition: ``Unschedulable`` or ``SchedulingGated``."""
    message: str


def read_node(manifest: Manifest) -> Node:
    """Read a node object."""
    spec, status = section(manifest, "spec"), section(manifest, "status")
    has = amounts(section(status, "allocatable"))
    numbers = _numbers(annotation_of(manifest, GPU_INDICES)) or tuple(range(has.get(GPU, 0) // ONE))
    return Node(
        name=name_of(manifest),
        allocatable=has,
        labels=texts(section(manifest, "metadata"), "labels"),
        taints=read_taints(spec),
        schedulable=spec.get("unschedulable") is not True,
        gpus=numbers,
    )


def read_claim(pod: Manifest) -> Claim:
    """Read a pod object."""
    spec = section(pod, "spec")
    return Claim(
        uid=uid_of(pod),
        wishes=read_wishes(spec),
        requests=requests(spec),
        priority=number(spec, "priority") or 0,
        preempts=text(spec, "preemptionPolicy") != "Never",
        gated=bool(entries(spec, "schedulingGates")),
        node=node_of(pod),
        gpus=_numbers(annotation_of(pod, GPU_INDICES)),
    )


def _numbers(said: str) -> Sequence[int]:
    return tuple(int(each) for each in said.split(",") if each.isdigit())


def gpu_slices(pod: Manifest) -> Mapping[str, Sequence[int]]:
    """Return the GPU indices that each container of a pod sees, by container name.

    Init containers run before the app containers, so both use the first GPUs.
    """
    given = _numbers(annotation_of(pod, GPU_INDICES))
    spec, found, at = section(pod, "spec"), {}, 0
    for container in entries(spec, "initContainers"):
        found[text(container, "name")] = given[: gpus(container)]
    for container in entries(spec, "containers"):
        count = gpus(container)
        found[text(container, "name")] = given[at : at + count]
        at += count
    return found


def schedule(
    claims: Iterable[Claim], bound: Iterable[Claim], nodes: Sequence[Node]
) -> Iterator[Binding | Unschedulable]:
    """Yield a decision for every pod in `claims`. Each decision is computed when it is requested.

    Pods are ordered by priority, then by their position in `claims`. Running pods are not preempted.

    Args:
        claims: The pending pods.
        bound: The pods that already use resources.
        nodes: All nodes.
    """
    rooms = [_Room(node) for node in nodes]
    by_name = {room.node.name: room for room in rooms}
    for claim in bound:
        if claim.node in by_name:
            by_name[claim.node].take(claim, claim.gpus)
    for claim in sorted(claims, key=lambda claim: -claim.priority):
        yield _decide(claim, rooms)


def _decide(claim: Claim, rooms: Sequence["_Room"]) -> Binding | Unschedulable:
    if claim.gated:
        message = "Scheduling is blocked due to non-empty scheduling gates"
        return Unschedulable(uid=claim.uid, reason="SchedulingGated", message=message)
    refusals = [(room, room.refusal(claim)) for room in rooms]
    fitting = [room for room, refusal in refusals if refusal is None]
    if not fitting:
        told = [refusal for _, refusal in refusals if refusal is not None]
        return Unschedulable(uid=claim.uid, reason="Unschedulable", message=_message(claim, told))
    # `max` returns the first of several nodes with the same score.
    room = max(fitting, key=lambda room: room.score(claim))
    given = room.free_gpus()[: claim.requests.get(GPU, 0) // ONE]
    room.take(claim, given)
    return Binding(uid=claim.uid, node=room.node.name, gpus=given if room.node.gpus else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """The reasons for which one node rejects a pod."""

    reasons: Sequence[str]
    hopeless: bool
    """True if preemption on this node would not help."""


class _Room:
    """A node with the resources that are used on it, during scheduling."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.used: Amounts = {}
        self.taken: set[int] = set()

    def take(self, claim: Claim, given: Sequence[int]) -> None:
        """Reserve the resources and GPUs of a pod on this node."""
        self.used = plus(self.used, claim.requests)
        self.taken.update(given)

    def free_gpus(self) -> Sequence[int]:
        """Return the GPUs that are not assigned to a pod."""
        return tuple(each for each in self.node.gpus if each not in self.taken)

    def refusal(self, claim: Claim) -> _Refusal | None:
        """Return the reasons of the first scheduler filter that rejects the pod, or None."""
        if not self.node.schedulable and not _tolerates_cordon(claim.wishes):
            return _Refusal(reasons=("node(s) were unschedulable",), hopeless=True)
        taint = claim.wishes.untolerated(self.node.taints)
        if taint is not None:
            said = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
            return _Refusal(reasons=(said,), hopeless=True)
        if not claim.wishes.accept(self.node.name, self.node.labels):
            return _Refusal(reasons=("node(s) didn't match Pod's node affinity/selector",), hopeless=True)
        return self._lack(claim)

    def _lack(self, claim: Claim) -> _Refusal | None:
        has = self.node.allocatable
        lacking = [
            resource
            for resource, amount in claim.requests.items()
            if amount > 0 and amount > has.get(resource, 0) - self.used.get(resource, 0)
        ]
        if not lacking:
            return None
        return _Refusal(
            reasons=[f"Insufficient {each}" if each != PODS else "Too many pods" for each in lacking],
            # The scheduler assumes that preemption can resolve every shortage of pod slots.
            hopeless=any(claim.requests[each] > has.get(each, 0) for each in lacking if each != PODS),
        )

    def score(self, claim: Claim) -> tuple[float, float]:
        """Return the score of this node for a pod: the mean share of free resources, then few pods."""
        after, has = plus(self.used, claim.requests), self.node.allocatable
        free = [1 - after.get(each, 0) / has[each] for each in _SCORED if has.get(each)]
        return sum(free) / max(1, len(free)), -self.used.get(PODS, 0)


CORDON: Final = Taint(key="node.kubernetes.io/unschedulable")


def _tolerates_cordon(wishes: Wishes) -> bool:
    return wishes.untolerated([CORDON]) is None


def _message(claim: Claim, refusals: Sequence[_Refusal]) -> str:
    if not refusals:
        return "no nodes available to schedule pods"
    none = f"0/{len(refusals)} nodes are available:"
    why = _counted(reason for refusal in refusals for reason in refusal.reasons)
    if not claim.preempts:
        return f"{none} {why}. preemption: not eligible due to preemptionPolicy=Never."
    helpless = _counted(_NO_USE if refusal.hopeless else _NO_VICTIM for refusal in refusals)
    return f"{none} {why}. preemption: {none} {helpless}."


_NO_USE: Final = "Preemption is not helpful for scheduling"
_NO_VICTIM: Final = "No preemption victims found for incoming pod"


def _counted(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in Counter(reasons).items()))

"""The emulated nodes: what they have, which pods they take, and where each pod goes.

Lives here: PURE; the scheduler, in kube-scheduler's words. Does not: what becomes of a node that is lost or
drained; see `node_states`.
"""

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
"""The annotation with the GPUs of this machine that a node has, or that a pod was given: ``0,1``."""

# Where a resource is spread over nodes, a node without any says 0 of it.
_SCORED: Final = ("cpu", "memory", GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the scheduler sees it."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    schedulable: bool = True
    gpus: Sequence[int] = ()
    """Their numbers on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A pod as the scheduler sees it."""

    uid: str
    wishes: Wishes
    requests: Amounts
    priority: int = 0
    preempts: bool = True
    gated: bool = False
    """Somebody holds it back; it is not to be looked at."""
    node: str = ""
    """Empty until it is bound."""
    gpus: Sequence[int] = ()
    """Which it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A pod has found its node."""

    uid: str
    node: str
    gpus: Sequence[int] | None = None
    """Which it is given, perhaps none; None on a node that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """A pod has found no node."""

    uid: str
    reason: str
    """Of the condition: ``Unschedulable`` or ``SchedulingGated``."""
    message: str


def read_node(manifest: Manifest) -> Node:
    """A node as it is stored."""
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
    """A pod as it is stored."""
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
    """Which of a pod's GPUs each of its containers sees, by the container's name.

    Init containers come before the others, so they see the first ones again.
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
    """What becomes of every claim, given what `bound` has taken; each is decided when it is asked for.

    The highest priority comes first, then the order given. Nothing that runs is moved for another.
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
    # Of equals the first: `max` keeps the order of the nodes.
    room = max(fitting, key=lambda room: room.score(claim))
    given = room.free_gpus()[: claim.requests.get(GPU, 0) // ONE]
    room.take(claim, given)
    return Binding(uid=claim.uid, node=room.node.name, gpus=given if room.node.gpus else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """Why one node does not take one pod."""

    reasons: Sequence[str]
    hopeless: bool
    """Nothing that could be thrown off the node would help."""


class _Room:
    """One node while pods are being placed."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.used: Amounts = {}
        self.taken: set[int] = set()

    def take(self, claim: Claim, given: Sequence[int]) -> None:
        """Put a pod here."""
        self.used = plus(self.used, claim.requests)
        self.taken.update(given)

    def free_gpus(self) -> Sequence[int]:
        """The GPUs that nobody has."""
        return tuple(each for each in self.node.gpus if each not in self.taken)

    def refusal(self, claim: Claim) -> _Refusal | None:
        """Why the pod cannot be put here, by the first of the scheduler's filters that says so."""
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
            # The scheduler takes every number of pods for one that may become less.
            hopeless=any(claim.requests[each] > has.get(each, 0) for each in lacking if each != PODS),
        )

    def score(self, claim: Claim) -> tuple[float, float]:
        """How well the pod would go here: where most would be left, then where the fewest pods are."""
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

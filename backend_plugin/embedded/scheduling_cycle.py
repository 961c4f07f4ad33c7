"""The scheduling algorithm: assigns pods to nodes as kube-scheduler does, with its messages. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.node_affinity import NodeConstraints, Taint, read_node_constraints, read_taints
from backend_plugin.embedded.objects import get_annotation, get_name, get_node_name, get_uid
from backend_plugin.embedded.resources import (
    GPU,
    ONE,
    PODS,
    Amounts,
    compute_requests,
    count_gpus,
    parse_amounts,
)

CORDON: Final = Taint(key="node.kubernetes.io/unschedulable")
GPU_INDICES: Final = "kfpytorch.flyte.org/gpus"
"""The annotation with the GPUs of a node or pod, as indices on this machine, such as ``0,1``."""

_NO_USE: Final = "Preemption is not helpful for scheduling"
_NO_VICTIM: Final = "No preemption victims found for incoming pod"
# Resources that determine the score of a node. A node without one of them is scored by the others.
_SCORED: Final = ("cpu", "memory", GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A node, as input of the scheduler."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    schedulable: bool = True
    gpus: Sequence[int] = ()
    """The indices of the node's GPUs on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """A pod, as input of the scheduler."""

    uid: str
    constraints: NodeConstraints
    requests: Amounts
    priority: int = 0
    gated: bool = False
    """True if the pod has scheduling gates; it is not scheduled then."""
    node: str = ""
    """The node that the pod is bound to; empty before it is bound."""
    gpus: Sequence[int] = ()
    """The indices of the GPUs that are assigned to the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The decision to bind a pod to a node."""

    uid: str
    node: str
    gpus: Sequence[int] | None = None
    """The indices of the assigned GPUs; None if the node has no GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """The decision that a pod cannot be scheduled now."""

    uid: str
    reason: str
    """The reason of the PodScheduled condition: ``Unschedulable`` or ``SchedulingGated``."""
    message: str


def read_node_info(manifest: Manifest) -> NodeInfo:
    """Return the properties of a node object that the scheduler uses."""
    spec, status = get_mapping(manifest, "spec"), get_mapping(manifest, "status")
    has = parse_amounts(get_mapping(status, "allocatable"))
    numbers = _parse_indices(get_annotation(manifest, GPU_INDICES)) or tuple(range(has.get(GPU, 0) // ONE))
    return NodeInfo(
        name=get_name(manifest),
        allocatable=has,
        labels=get_text_map(manifest, "metadata", "labels"),
        taints=read_taints(spec),
        schedulable=spec.get("unschedulable") is not True,
        gpus=numbers,
    )


def read_pod_info(pod: Manifest) -> PodInfo:
    """Return the properties of a pod object that the scheduler uses."""
    spec = get_mapping(pod, "spec")
    return PodInfo(
        uid=get_uid(pod),
        constraints=read_node_constraints(spec),
        requests=compute_requests(spec),
        priority=get_int(spec, "priority") or 0,
        gated=bool(get_mappings(spec, "schedulingGates")),
        node=get_node_name(pod),
        gpus=_parse_indices(get_annotation(pod, GPU_INDICES)),
    )


def _parse_indices(indices: str) -> Sequence[int]:
    return tuple(int(each) for each in indices.split(",") if each.isdigit())


def compute_gpu_slices(pod: Manifest) -> Mapping[str, Sequence[int]]:
    """Return the GPU indices that each container of a pod sees, by container name.

    Init containers run before the app containers, so each of them uses the first GPUs of the pod.
    """
    gpus = _parse_indices(get_annotation(pod, GPU_INDICES))
    spec, found, at = get_mapping(pod, "spec"), {}, 0
    for container in get_mappings(spec, "initContainers"):
        found[get_text(container, "name")] = gpus[: count_gpus(container)]
    for container in get_mappings(spec, "containers"):
        count = count_gpus(container)
        found[get_text(container, "name")] = gpus[at : at + count]
        at += count
    return found


def schedule_pods(
    pods: Iterable[PodInfo], bound: Iterable[PodInfo], nodes: Sequence[NodeInfo]
) -> Iterator[Binding | Unschedulable]:
    """Yield a decision for each pod in `pods`, the highest priority first.

    The pods in `bound` already use resources of the nodes.
    """
    states = [_NodeState(node) for node in nodes]
    by_name = {state.node.name: state for state in states}
    for pod in bound:
        if pod.node in by_name:
            by_name[pod.node].reserve(pod, pod.gpus)
    for pod in sorted(pods, key=lambda pod: -pod.priority):
        yield _decide_pod(pod, states)


def _decide_pod(pod: PodInfo, states: Sequence["_NodeState"]) -> Binding | Unschedulable:
    if pod.gated:
        message = "Scheduling is blocked due to non-empty scheduling gates"
        return Unschedulable(uid=pod.uid, reason="SchedulingGated", message=message)
    rejections = [state.find_rejection(pod) for state in states]
    fitting = [state for state, (reasons, _) in zip(states, rejections, strict=True) if not reasons]
    if not fitting:
        message = _format_message(rejections)
        return Unschedulable(uid=pod.uid, reason="Unschedulable", message=message)
    # `max` returns the first of several nodes with the same score.
    state = max(fitting, key=lambda state: state.compute_score(pod))
    gpus = state.choose_gpus(pod)
    state.reserve(pod, gpus)
    return Binding(uid=pod.uid, node=state.node.name, gpus=gpus if state.node.gpus else None)


class _NodeState:
    """A node during one scheduling cycle, with the resources that pods use on it."""

    def __init__(self, node: NodeInfo) -> None:
        self.node = node
        self.used = Counter[str]()
        self.taken: set[int] = set()

    def choose_gpus(self, pod: PodInfo) -> tuple[int, ...]:
        """Return the indices of free GPUs for a pod that fits on this node."""
        free = [each for each in self.node.gpus if each not in self.taken]
        return tuple(free[: pod.requests.get(GPU, 0) // ONE])

    def reserve(self, pod: PodInfo, gpus: Sequence[int]) -> None:
        """Mark the resources of a pod, and the GPUs with the indices `gpus`, as used on this node."""
        self.used.update(pod.requests)
        self.taken.update(gpus)

    def find_rejection(self, pod: PodInfo) -> tuple[Sequence[str], str]:
        """Return the reasons why the pod does not fit on this node, and why preemption there would not help.

        Only the first filter that rejects the pod gives reasons. There are none if the pod fits.
        """
        if not self.node.schedulable and pod.constraints.find_untolerated_taint([CORDON]):
            return ["node(s) were unschedulable"], _NO_USE
        taint = pod.constraints.find_untolerated_taint(self.node.taints)
        if taint is not None:
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"], _NO_USE
        if not pod.constraints.is_match(self.node.name, self.node.labels):
            return ["node(s) didn't match Pod's node affinity/selector"], _NO_USE
        return self._find_shortage(pod)

    def _find_shortage(self, pod: PodInfo) -> tuple[Sequence[str], str]:
        has = self.node.allocatable
        missing = [
            resource
            for resource, amount in pod.requests.items()
            if amount > max(0, has.get(resource, 0) - self.used[resource])
        ]
        # The scheduler assumes that preemption can resolve every shortage of pod slots.
        is_too_small = any(pod.requests[each] > has.get(each, 0) for each in missing if each != PODS)
        reasons = [f"Insufficient {each}" if each != PODS else "Too many pods" for each in missing]
        return reasons, _NO_USE if is_too_small else _NO_VICTIM

    def compute_score(self, pod: PodInfo) -> tuple[float, float]:
        """Return the score of this node for a pod (the highest wins).

        The first value is the mean share of resources that remain free; the second is the number of pods on
        the node, as a negative number.
        """
        has, needed = self.node.allocatable, pod.requests
        free = [1 - (self.used[each] + needed.get(each, 0)) / has[each] for each in _SCORED if has.get(each)]
        return sum(free) / max(1, len(free)), -self.used[PODS]


def _format_message(rejections: Sequence[tuple[Sequence[str], str]]) -> str:
    if not rejections:
        return "no nodes available to schedule pods"
    none = f"0/{len(rejections)} nodes are available:"
    why = _format_counts(reason for reasons, _ in rejections for reason in reasons)
    return f"{none} {why}. preemption: {none} {_format_counts(use for _, use in rejections)}."


def _format_counts(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in Counter(reasons).items()))

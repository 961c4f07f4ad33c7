"""Finds the nodes on which a pod fits when they are empty, by the rules of the Kubernetes scheduler."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.embedded.objects import find_condition
from backend_plugin.embedded.scheduling_cycle import NodeInfo, PodInfo, read_node_info, read_pod_info

NodeFilter: TypeAlias = Callable[[PodInfo, NodeInfo], bool]
"""True if a node accepts a pod by one criterion: its labels, its taints or its resources."""


def list_ready_nodes(facts: Facts) -> Sequence[NodeInfo]:
    """Return the nodes that are ready and accept pods."""
    return [read_node_info(each) for each in facts.get_objects(Subject.NODES) if _is_ready(each)]


def _is_ready(node: Manifest) -> bool:
    ready = find_condition(get_mappings(node, "status", "conditions"), "Ready")
    return ready.get("status") == "True" and get_mapping(node, "spec").get("unschedulable") is not True


def build_pod_info(role: RolePods) -> PodInfo:
    """Return the first pod of a role, as input of the scheduler."""
    return read_pod_info({**role.pod, "metadata": {**get_mapping(role.pod, "metadata"), "uid": role.name}})


def is_selected(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the selector and the affinity of the pod allow the node."""
    return claim.wishes.is_match(node.name, node.labels)


def is_tolerated(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the pod tolerates the taints of the node."""
    return claim.wishes.find_untolerated_taint(node.taints) is None


def can_fit(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the pod fits on the node when the node is empty."""
    return all(amount <= node.allocatable.get(name, 0) for name, amount in claim.requests.items())


_FILTERS: Final[Sequence[NodeFilter]] = (is_selected, is_tolerated, can_fit)


def find_exclusion(claim: PodInfo, nodes: Sequence[NodeInfo]) -> tuple[NodeFilter, Sequence[NodeInfo]] | None:
    """Return the first filter that rejects all remaining nodes, and these nodes; None if a node fits."""
    for accepts in _FILTERS:
        left = [each for each in nodes if accepts(claim, each)]
        if not left:
            return accepts, nodes
        nodes = left
    return None


def iter_excluded_roles(
    facts: Facts, by: NodeFilter
) -> Iterator[tuple[RolePods, PodInfo, Sequence[NodeInfo]]]:
    """Yield each role that fits on no node because of the filter `by`, with its pod and some nodes.

    The nodes are those that the filters before `by` accept.
    """
    nodes = list_ready_nodes(facts)
    for role in facts.task.roles if nodes else ():
        claim = build_pod_info(role)
        exclusion = find_exclusion(claim, nodes)
        if exclusion is not None and exclusion[0] is by:
            yield role, claim, exclusion[1]

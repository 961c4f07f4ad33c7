"""Finds the nodes on which a pod fits when they are empty, by the rules of the Kubernetes scheduler.

Also formats the taints that a pod does not tolerate, and the settings that tolerate them.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.embedded.node_affinity import Taint
from backend_plugin.embedded.objects import find_condition, with_metadata
from backend_plugin.embedded.scheduling_cycle import NodeInfo, PodInfo, read_node_info, read_pod_info

NodeFilter: TypeAlias = Callable[[PodInfo, NodeInfo], bool]
"""True if a node accepts a pod by one criterion: its labels, its taints or its resources."""
_TEMPORARY: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
)
"""Key prefixes of taints that a controller sets and removes; a pod must not tolerate such taints."""
_NOT_READY: Final = "/agent-not-ready"
"""The suffix of the keys of taints that a node has until its agents, such as a CNI plugin, are ready."""


def list_ready_nodes(facts: Facts) -> Sequence[NodeInfo]:
    """Return the nodes that are ready and accept pods."""
    return [read_node_info(each) for each in facts.get_objects(Subject.NODES) if _is_ready(each)]


def _is_ready(node: Manifest) -> bool:
    ready = find_condition(get_mappings(node, "status", "conditions"), "Ready")
    return ready.get("status") == "True" and get_mapping(node, "spec").get("unschedulable") is not True


def build_pod_info(role: RolePods) -> PodInfo:
    """Return the first pod of a role, in the form that the node filters need."""
    return read_pod_info(with_metadata(role.pod, uid=role.name))


def is_selected(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the selector and the affinity of the pod allow the node."""
    return claim.constraints.is_match(node.name, node.labels)


def is_tolerated(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the pod tolerates the taints of the node."""
    return claim.constraints.find_untolerated_taint(node.taints) is None


def can_fit(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the pod fits on the node when the node is empty."""
    return all(amount <= node.allocatable.get(name, 0) for name, amount in claim.requests.items())


_FILTERS: Final[Sequence[NodeFilter]] = (is_selected, is_tolerated, can_fit)


def find_exclusion(claim: PodInfo, nodes: Sequence[NodeInfo]) -> tuple[NodeFilter, Sequence[NodeInfo]] | None:
    """Apply the node filters in turn; return the first one that leaves no node, or None if a node remains.

    The second value of the result contains the nodes that the earlier filters have left.
    """
    for accepts in _FILTERS:
        left = [each for each in nodes if accepts(claim, each)]
        if not left:
            return accepts, nodes
        nodes = left
    return None


def iter_excluded_roles(
    facts: Facts, by: NodeFilter
) -> Iterator[tuple[RolePods, PodInfo, Sequence[NodeInfo]]]:
    """Yield each role that fits on no node because of the filter `by`, with its pod and a list of nodes.

    The list contains the nodes that all filters before `by` accept.
    """
    nodes = list_ready_nodes(facts)
    for role in facts.task.roles if nodes else ():
        claim = build_pod_info(role)
        exclusion = find_exclusion(claim, nodes)
        if exclusion is not None and exclusion[0] is by:
            yield role, claim, exclusion[1]


def list_untolerated(claim: PodInfo, node: NodeInfo) -> Sequence[Taint]:
    """Return the taints of a node that a pod does not tolerate."""
    return [each for each in node.taints if claim.constraints.find_untolerated_taint([each]) is not None]


def is_temporary(taint: Taint) -> bool:
    """True if a controller sets the taint only for some time, such as while the node is not ready."""
    return taint.key.startswith(_TEMPORARY) or taint.key.endswith(_NOT_READY)


def format_taint(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def format_toleration_settings(claim: PodInfo, taints: Sequence[Taint]) -> str:
    """Return a remedy with settings that make the pod `claim`, and pods like it, tolerate the taints."""
    of_resources = [each for each in taints if claim.requests.get(each.key)]
    of_all = [each for each in taints if each not in of_resources]
    by_resource = ", ".join(f"{each.key}: [{_format_toleration(each)}]" for each in of_resources)
    written = [f"resource-tolerations: {{{by_resource}}}"] if of_resources else []
    if of_all:
        written.append(f"default-tolerations: [{', '.join(map(_format_toleration, of_all))}]")
    return f"write plugins: {{k8s: {{{', '.join(written)}}}}}"


def _format_toleration(taint: Taint) -> str:
    how = f"operator: Equal, value: {json.dumps(taint.value)}" if taint.value else "operator: Exists"
    return f"{{key: {taint.key}, {how}, effect: {taint.effect}}}"

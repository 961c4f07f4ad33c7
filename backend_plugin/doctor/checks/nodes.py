"""Checks of the Kubernetes nodes: whether each replica, and all replicas together, can be scheduled."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.embedded.node_affinity import Taint
from backend_plugin.embedded.resources import ONE
from backend_plugin.embedded.scheduling_cycle import (
    NodeInfo,
    PodInfo,
    Unschedulable,
    read_node_info,
    read_pod_info,
    schedule_pods,
)

_MIG: Final = "nvidia.com/mig-"
_PRESENT: Final = (
    "nvidia.com/gpu.present",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "feature.node.kubernetes.io/pci-10de.present",
)
"""Node labels that indicate a GPU."""
_PLUGIN: Final = (
    "helm install nvidia-device-plugin nvidia-device-plugin --repo "
    "https://nvidia.github.io/k8s-device-plugin "
    "-n nvidia-device-plugin --create-namespace"
)
_READY: Final = "Ready"
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
"""Prefixes of taint keys that a controller sets and removes; a pod must not tolerate them."""
_NOT_READY: Final = "/agent-not-ready"
"""The suffix of taint keys that agents of a node, such as a CNI plugin, use until they are ready."""


_Filter: TypeAlias = Callable[[PodInfo, NodeInfo], bool]
"""True if a node accepts a pod, as far as one property of the node decides."""


def _list_ready_nodes(facts: Facts) -> Sequence[NodeInfo]:
    return [read_node_info(each) for each in facts.get_objects(Subject.NODES) if _is_ready(each)]


def _is_ready(node: Manifest) -> bool:
    conditions = get_mappings(node, "status", "conditions")
    ready = any((get_text(each, "type"), get_text(each, "status")) == (_READY, "True") for each in conditions)
    return ready and get_mapping(node, "spec").get("unschedulable") is not True


def _build_pod_info(role: RolePods) -> PodInfo:
    return read_pod_info({**role.pod, "metadata": {**get_mapping(role.pod, "metadata"), "uid": role.name}})


def _is_selected(claim: PodInfo, node: NodeInfo) -> bool:
    return claim.wishes.is_match(node.name, node.labels)


def _is_tolerated(claim: PodInfo, node: NodeInfo) -> bool:
    return claim.wishes.find_untolerated_taint(node.taints) is None


def _can_fit(claim: PodInfo, node: NodeInfo) -> bool:
    """True if the pod fits on the node when the node is empty."""
    return all(amount <= node.allocatable.get(name, 0) for name, amount in claim.requests.items())


_FILTERS: Final[Sequence[_Filter]] = (_is_selected, _is_tolerated, _can_fit)


def _find_exclusion(claim: PodInfo, nodes: Sequence[NodeInfo]) -> tuple[_Filter, Sequence[NodeInfo]] | None:
    """Return the first filter that rejects all nodes, and the nodes that no earlier filter rejects."""
    for accepts in _FILTERS:
        left = [each for each in nodes if accepts(claim, each)]
        if not left:
            return accepts, nodes
        nodes = left
    return None


def _iter_excluded_roles(facts: Facts, by: _Filter) -> Iterator[tuple[RolePods, PodInfo, Sequence[NodeInfo]]]:
    nodes = _list_ready_nodes(facts)
    for role in facts.task.roles if nodes else ():
        claim = _build_pod_info(role)
        exclusion = _find_exclusion(claim, nodes)
        if exclusion is not None and exclusion[0] is by:
            yield role, claim, exclusion[1]


def _iter_roles_without_device(facts: Facts) -> Iterator[tuple[RolePods, str, Sequence[str]]]:
    """Yield each role that requests a device that no node has, with the device and the nodes' MIG slices."""
    for role, claim, nodes in _iter_excluded_roles(facts, _can_fit):
        for name in _list_missing_devices(claim, nodes)[:1]:
            yield role, name, _list_mig_slices(nodes)


CHECKS: Final = CheckList()


@CHECKS.add(Subject.NODES)
def _check_no_ready_node(facts: Facts) -> Iterator[Violation]:
    """A node is ready and accepts pods."""
    if not _list_ready_nodes(facts):
        yield Violation(
            sentence=f"none of {len(facts.get_objects(Subject.NODES))} nodes is ready and accepts pods",
            remedy=_format_uncordon_command(facts.get_objects(Subject.NODES)),
        )


def _format_uncordon_command(nodes: Sequence[Manifest]) -> str:
    cordoned = [
        deployments.get_name(each) for each in nodes if get_mapping(each, "spec").get("unschedulable") is True
    ]
    if cordoned:
        return f"kubectl uncordon {' '.join(cordoned)}"
    return "kubectl describe nodes  # the conditions contain the reason why a node is not ready; or add nodes"


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_node_selector(facts: Facts) -> Iterator[Violation]:
    """Each role matches a node by selector and affinity."""
    for role, claim, nodes in _iter_excluded_roles(facts, _is_selected):
        labels = ", ".join(f"{key}={value}" for key, value in claim.wishes.selector.items()) or "its affinity"
        yield Violation(
            sentence=f"none of {len(nodes)} nodes matches the selector or affinity of a {role.name}: "
            f"{labels}",
            remedy=_format_label_remedy(claim, nodes),
        )


def _format_label_remedy(claim: PodInfo, nodes: Sequence[NodeInfo]) -> str:
    change = "change the node selector of the task, its PodTemplate or the settings"
    selector = claim.wishes.selector
    # Prefixed labels are set by Kubernetes or a cloud provider, not by hand.
    if not selector or claim.wishes.terms is not None or any("/" in key for key in selector):
        return f"kubectl get nodes --show-labels  # {change}"
    labels = " ".join(f"{key}={value}" for key, value in selector.items())
    return f"kubectl label node {nodes[0].name} --overwrite {labels}  # or another node; or {change}"


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_node_taints(facts: Facts) -> Iterator[Violation]:
    """Each role tolerates the taints of a matching node."""
    for role, claim, nodes in _iter_excluded_roles(facts, _is_tolerated):
        by_node = [(each, _list_untolerated(claim, each)) for each in nodes]
        lasting = [each for each in by_node if not any(map(_is_temporary, each[1]))]
        if lasting:
            _, taints = min(lasting, key=lambda each: (not _can_fit(claim, each[0]), len(each[1])))
            remedy = _format_toleration_settings(claim, taints)
        else:
            node, taints = by_node[0]
            remedy = (
                f"kubectl describe node {node.name}  # do not tolerate {_get_temporary_key(taints)}: "
                "it is removed from the node when its condition ends"
            )
        yield Violation(
            sentence=f"every node that matches a {role.name} has a taint that it does not "
            f"tolerate, such as {', '.join(map(_format_taint, taints))}",
            remedy=remedy,
        )


def _list_untolerated(claim: PodInfo, node: NodeInfo) -> Sequence[Taint]:
    return [each for each in node.taints if claim.wishes.find_untolerated_taint([each]) is not None]


def _is_temporary(taint: Taint) -> bool:
    """True if a controller sets the taint while a condition of the node lasts."""
    return taint.key.startswith(_TEMPORARY) or taint.key.endswith(_NOT_READY)


def _get_temporary_key(taints: Sequence[Taint]) -> str:
    return next(each.key for each in taints if _is_temporary(each))


def _format_taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _format_toleration_settings(claim: PodInfo, taints: Sequence[Taint]) -> str:
    """Return settings that make the pods of a role tolerate the taints."""
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


def _list_missing_devices(claim: PodInfo, nodes: Sequence[NodeInfo]) -> list[str]:
    return [
        name
        for name, amount in claim.requests.items()
        if amount and "/" in name and not any(each.allocatable.get(name) for each in nodes)
    ]


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_device_missing(facts: Facts) -> Iterator[Violation]:
    """A node has the devices that a role requests."""
    for role, name, slices in _iter_roles_without_device(facts):
        if not slices:
            yield Violation(
                sentence=f"no node for a {role.name} has {name}",
                remedy="kubectl get nodes -o 'custom-columns=NAME:.metadata.name,HAS:.status.allocatable."
                f"{name.replace('.', chr(92) + '.')}'  # then add nodes with it",
            )


def _list_mig_slices(nodes: Sequence[NodeInfo]) -> list[str]:
    return sorted(
        {name for each in nodes for name, has in each.allocatable.items() if name.startswith(_MIG) and has}
    )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_mig_profile(facts: Facts) -> Iterator[Violation]:
    """Tasks request whole GPUs only if nodes have whole GPUs."""
    for role, name, slices in _iter_roles_without_device(facts):
        if slices:
            yield Violation(
                sentence=f"a {role.name} requests {name}, but the nodes have only MIG slices: "
                f"{', '.join(slices)}",
                remedy=f"request one of them in a PodTemplate: resources: {{limits: {{{slices[0]}: "
                f"1}}}}; or write mig.strategy: single in the device plugin's values",
            )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_replica_too_large(facts: Facts) -> Iterator[Violation]:
    """A replica of each role fits on an empty node."""
    for role, claim, nodes in _iter_excluded_roles(facts, _can_fit):
        if _list_missing_devices(claim, nodes):
            continue
        lacking = [
            f"{_format_amount(name, amount)} {name} of {_format_amount(name, most)} at most"
            for name, amount in claim.requests.items()
            if amount > (most := max(each.allocatable.get(name, 0) for each in nodes))
        ]
        why = ", ".join(lacking) or "no node has all resources together"
        yield Violation(
            sentence=f"a {role.name} requests more than any matching node has, even when empty: {why}",
            remedy="request less in the Resources of the task, or add larger nodes",
        )


def _format_amount(name: str, amount: int) -> str:
    return f"{amount / ONE / 2**30:g}Gi" if name == "memory" else f"{amount / ONE:g}"


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_gang_too_large(facts: Facts) -> Iterator[Violation]:
    """All replicas together fit on the empty nodes."""
    nodes = _list_ready_nodes(facts)
    if any(_find_exclusion(_build_pod_info(role), nodes) for role in facts.task.roles):
        return  # Another check reports that not even one replica fits.
    claims = [*_iter_claims(facts)]
    left = [each for each in schedule_pods(claims, (), nodes) if isinstance(each, Unschedulable)]
    if left:
        yield Violation(
            sentence=f"{len(left)} of {len(claims)} replicas do not fit on {len(nodes)} nodes, "
            f"even if all nodes are empty: {left[0].message.partition('. preemption')[0]}",
            remedy="request fewer replicas or less for each, add nodes, or let the autoscaler add them",
        )


def _iter_claims(facts: Facts) -> Iterator[PodInfo]:
    """Yield all pods that must be scheduled before the job starts."""
    for role in facts.task.roles:
        claim = _build_pod_info(role)
        yield from (replace(claim, uid=f"{role.name}-{at}") for at in range(role.needed))


@CHECKS.add(Subject.NODES)
def _check_device_plugin(facts: Facts) -> Iterator[Violation]:
    """Every node with GPU labels has GPUs in its capacity."""
    name = facts.settings.gpu_resource_name
    without = [
        deployments.get_name(each)
        for each in facts.get_objects(Subject.NODES)
        if _has_gpu_label(each) and not _has_gpus(each, name)
    ]
    if without:
        yield Violation(
            sentence=f"{len(without)} nodes have GPU labels but offer no {name}, because no "
            f"device plugin runs there: {', '.join(without[:3])}",
            remedy=_PLUGIN,
        )


def _has_gpu_label(node: Manifest) -> bool:
    return any(get_text(node, "metadata", "labels", label) not in ("", "false") for label in _PRESENT)


def _has_gpus(node: Manifest, name: str) -> bool:
    capacity = get_mapping(node, "status", "capacity")
    return any(resource == name or resource.startswith(_MIG) for resource in capacity)


@CHECKS.add(Subject.NODES, level=Severity.WARNING)
def _check_gpu_unhealthy(facts: Facts) -> Iterator[Violation]:
    """Every GPU of a node is available to pods."""
    name = facts.settings.gpu_resource_name
    for each in facts.get_objects(Subject.NODES):
        node = read_node_info(each)
        has = read_node_info({**each, "status": {"allocatable": get_mapping(each, "status", "capacity")}})
        lost = (has.allocatable.get(name, 0) - node.allocatable.get(name, 0)) // ONE
        if lost > 0:
            yield Violation(
                sentence=f"{lost} GPUs of node {node.name} are unhealthy: {name}",
                remedy=f"kubectl describe node {node.name}; kubectl drain {node.name} --ignore-daemonsets",
            )

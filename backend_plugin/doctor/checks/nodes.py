"""Checks of the Kubernetes nodes: whether each replica, and all replicas together, can be scheduled."""

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

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


class _ExclusionReason(enum.Enum):
    """The reasons why a role's pod fits on no node, even if all nodes were empty."""

    SELECTOR = "selector"
    TAINT = "taint"
    NO_DEVICE = "device"
    SIZE = "size"


def _list_ready_nodes(facts: Facts) -> Sequence[NodeInfo]:
    return [read_node_info(each) for each in facts.get_objects(Subject.NODES) if _is_ready(each)]


def _is_ready(node: Manifest) -> bool:
    conditions = get_mappings(node, "status", "conditions")
    ready = any((get_text(each, "type"), get_text(each, "status")) == (_READY, "True") for each in conditions)
    return ready and get_mapping(node, "spec").get("unschedulable") is not True


def _build_pod_info(role: RolePods) -> PodInfo:
    return read_pod_info({**role.pod, "metadata": {**get_mapping(role.pod, "metadata"), "uid": role.name}})


def _find_exclusion(
    claim: PodInfo, nodes: Sequence[NodeInfo]
) -> tuple[_ExclusionReason, Sequence[NodeInfo]] | None:
    """Return the first reason why a pod fits on no node, and the nodes that no earlier reason excludes."""
    chosen = [each for each in nodes if claim.wishes.is_match(each.name, each.labels)]
    if not chosen:
        return _ExclusionReason.SELECTOR, nodes
    taking = [each for each in chosen if claim.wishes.find_untolerated_taint(each.taints) is None]
    if not taking:
        return _ExclusionReason.TAINT, chosen
    if any(_can_fit(claim, each.allocatable) for each in taking):
        return None
    devices = [name for name, amount in claim.requests.items() if amount and "/" in name]
    if any(not any(each.allocatable.get(name) for each in taking) for name in devices):
        return _ExclusionReason.NO_DEVICE, taking
    return _ExclusionReason.SIZE, taking


def _can_fit(claim: PodInfo, has: Mapping[str, int]) -> bool:
    return all(amount <= has.get(name, 0) for name, amount in claim.requests.items())


def _iter_excluded_roles(
    facts: Facts, reason: _ExclusionReason
) -> Iterator[tuple[RolePods, PodInfo, Sequence[NodeInfo]]]:
    nodes = _list_ready_nodes(facts)
    for role in facts.task.roles if nodes else ():
        claim = _build_pod_info(role)
        exclusion = _find_exclusion(claim, nodes)
        if exclusion is not None and exclusion[0] is reason:
            yield role, claim, exclusion[1]


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
    for role, claim, nodes in _iter_excluded_roles(facts, _ExclusionReason.SELECTOR):
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
    for role, claim, nodes in _iter_excluded_roles(facts, _ExclusionReason.TAINT):
        by_node = [(each, _list_untolerated(claim, each)) for each in nodes]
        lasting = [each for each in by_node if not any(map(_is_temporary, each[1]))]
        if lasting:
            _, taints = min(
                lasting, key=lambda each: (not _can_fit(claim, each[0].allocatable), len(each[1]))
            )
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
    for role, claim, nodes in _iter_excluded_roles(facts, _ExclusionReason.NO_DEVICE):
        if not _list_mig_slices(nodes):
            name = _list_missing_devices(claim, nodes)[0]
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
    for role, claim, nodes in _iter_excluded_roles(facts, _ExclusionReason.NO_DEVICE):
        if slices := _list_mig_slices(nodes):
            yield Violation(
                sentence=f"a {role.name} requests {_list_missing_devices(claim, nodes)[0]}, but the "
                f"nodes have only MIG slices: {', '.join(slices)}",
                remedy=f"request one of them in a PodTemplate: resources: {{limits: {{{slices[0]}: "
                f"1}}}}; or write mig.strategy: single in the device plugin's values",
            )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_replica_too_large(facts: Facts) -> Iterator[Violation]:
    """A replica of each role fits on an empty node."""
    for role, claim, nodes in _iter_excluded_roles(facts, _ExclusionReason.SIZE):
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
    fits_alone = nodes and all(
        _find_exclusion(_build_pod_info(role), nodes) is None for role in facts.task.roles
    )
    if not fits_alone:
        return
    claims = [
        replace(_build_pod_info(role), uid=f"{role.name}-{at}")
        for role in facts.task.roles
        for at in range(role.needed)
    ]
    left = [each for each in schedule_pods(claims, (), nodes) if isinstance(each, Unschedulable)]
    if left:
        yield Violation(
            sentence=f"{len(left)} of {len(claims)} replicas do not fit on {len(nodes)} nodes, "
            f"even if all nodes are empty: {left[0].message.partition('. preemption')[0]}",
            remedy="request fewer replicas or less for each, add nodes, or let the autoscaler add them",
        )


@CHECKS.add(Subject.NODES)
def _check_device_plugin(facts: Facts) -> Iterator[Violation]:
    """Every node with GPU labels has GPUs in its capacity."""
    name = facts.settings.gpu_resource_name
    without = [
        deployments.get_name(each)
        for each in facts.get_objects(Subject.NODES)
        if any(_is_label_set(get_mapping(each, "metadata", "labels"), label) for label in _PRESENT)
        and not any(has == name or has.startswith(_MIG) for has in get_mapping(each, "status", "capacity"))
    ]
    if without:
        yield Violation(
            sentence=f"{len(without)} nodes have GPU labels but offer no {name}, because no "
            f"device plugin runs there: {', '.join(without[:3])}",
            remedy=_PLUGIN,
        )


def _is_label_set(labels: Manifest, label: str) -> bool:
    return get_text(labels, label) not in ("", "false")


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

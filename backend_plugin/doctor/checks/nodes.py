"""Checks of the Kubernetes nodes: whether each replica, and all replicas together, can be scheduled."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, node_filters
from backend_plugin.doctor.check import CheckList, Violation
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.embedded.resources import ONE
from backend_plugin.embedded.scheduling_cycle import NodeInfo, PodInfo, Unschedulable, schedule_pods

_MIG: Final = "nvidia.com/mig-"
_PRESENT: Final = (
    "nvidia.com/gpu.present",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "feature.node.kubernetes.io/pci-10de.present",
)
"""Node labels that indicate a GPU."""


def _iter_roles_without_device(facts: Facts) -> Iterator[tuple[RolePods, str, Sequence[str]]]:
    """Yield each role that requests a device that no node has, the device, and the nodes' MIG resources."""
    for role, claim, nodes in node_filters.iter_excluded_roles(facts, node_filters.can_fit):
        for name in _list_missing_devices(claim, nodes)[:1]:
            devices = {name for each in nodes for name, has in each.allocatable.items() if has}
            yield role, name, sorted(each for each in devices if each.startswith(_MIG))


CHECKS: Final = CheckList()


@CHECKS.add(Subject.NODES)
def _check_no_ready_node(facts: Facts) -> Iterator[Violation]:
    """Check that a node is ready and accepts pods."""
    nodes = facts.get_objects(Subject.NODES)
    cordoned = [each for each in nodes if get_mapping(each, "spec").get("unschedulable") is True]
    if not node_filters.list_ready_nodes(facts):
        yield Violation(
            f"none of {len(nodes)} nodes is ready and accepts pods",
            f"kubectl uncordon {' '.join(map(deployments.get_name, cordoned))}"
            if cordoned
            else "kubectl describe nodes  # the conditions contain the reason why a node is not ready; or "
            "add nodes",
        )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_node_selector(facts: Facts) -> Iterator[Violation]:
    """Check that each role matches a node by selector and affinity."""
    for role, claim, nodes in node_filters.iter_excluded_roles(facts, node_filters.is_selected):
        labels = (
            ", ".join(f"{key}={value}" for key, value in claim.constraints.selector.items()) or "its affinity"
        )
        yield Violation(
            f"none of {len(nodes)} nodes matches the selector or affinity of a {role.name}: {labels}",
            "kubectl get nodes --show-labels  # change the node selector of the task, its PodTemplate or the "
            "settings, or label a node",
        )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_node_taints(facts: Facts) -> Iterator[Violation]:
    """Check that each role tolerates the taints of a matching node."""
    for role, claim, nodes in node_filters.iter_excluded_roles(facts, node_filters.is_tolerated):
        by_node = [(each, node_filters.list_untolerated(claim, each)) for each in nodes]
        lasting = [each for each in by_node if not any(map(node_filters.is_temporary, each[1]))]
        if lasting:
            _, taints = min(
                lasting, key=lambda each: (not node_filters.can_fit(claim, each[0]), len(each[1]))
            )
            remedy = node_filters.format_toleration_settings(claim, taints)
        else:
            node, taints = by_node[0]
            key = next(each.key for each in taints if node_filters.is_temporary(each))
            remedy = (
                f"kubectl describe node {node.name}  # do not tolerate {key}: it is removed from the node "
                "when its condition ends"
            )
        yield Violation(
            f"every node that matches a {role.name} has a taint that it does not tolerate, such as "
            f"{', '.join(map(node_filters.format_taint, taints))}",
            remedy,
        )


def _list_missing_devices(claim: PodInfo, nodes: Sequence[NodeInfo]) -> list[str]:
    return [
        name
        for name, amount in claim.requests.items()
        if amount and "/" in name and not any(each.allocatable.get(name) for each in nodes)
    ]


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_device_missing(facts: Facts) -> Iterator[Violation]:
    """Check that a node has the devices that a role requests."""
    for role, name, slices in _iter_roles_without_device(facts):
        if not slices:
            yield Violation(
                f"no node for a {role.name} has {name}",
                "kubectl get nodes -o 'custom-columns=NAME:.metadata.name,HAS:.status.allocatable."
                f"{name.replace('.', chr(92) + '.')}'  # then add nodes with it",
            )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_mig_profile(facts: Facts) -> Iterator[Violation]:
    """Check that no role requests whole GPUs if the nodes have only MIG slices."""
    for role, name, slices in _iter_roles_without_device(facts):
        if slices:
            yield Violation(
                f"a {role.name} requests {name}, but the nodes have only MIG slices: {', '.join(slices)}",
                f"request one of them in a PodTemplate: resources: {{limits: {{{slices[0]}: 1}}}}; or write "
                "mig.strategy: single in the device plugin's values",
            )


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_replica_too_large(facts: Facts) -> Iterator[Violation]:
    """Check that a replica of each role fits on an empty node."""
    for role, claim, nodes in node_filters.iter_excluded_roles(facts, node_filters.can_fit):
        if _list_missing_devices(claim, nodes):
            continue
        shortages = [
            f"{_format_amount(name, amount)} {name} of {_format_amount(name, most)} at most"
            for name, amount in claim.requests.items()
            if amount > (most := max(each.allocatable.get(name, 0) for each in nodes))
        ]
        why = ", ".join(shortages) or "no node has all resources together"
        yield Violation(
            f"a {role.name} requests more than any matching node has, even when empty: {why}",
            "request less in the Resources of the task, or add larger nodes",
        )


def _format_amount(name: str, amount: int) -> str:
    return f"{amount / ONE / 2**30:g}Gi" if name == "memory" else f"{amount / ONE:g}"


@CHECKS.add(Subject.NODES, Subject.ROLES)
def _check_gang_too_large(facts: Facts) -> Iterator[Violation]:
    """Check that all replicas would fit together on the ready nodes if these were empty."""
    nodes = node_filters.list_ready_nodes(facts)
    pods = [(role, node_filters.build_pod_info(role)) for role in facts.task.roles]
    if any(node_filters.find_exclusion(pod, nodes) for _, pod in pods):
        return  # Another check reports that not even one replica fits.
    claims = [replace(pod, uid=f"{role.name}-{at}") for role, pod in pods for at in range(role.needed)]
    left = [each for each in schedule_pods(claims, (), nodes) if isinstance(each, Unschedulable)]
    if left:
        yield Violation(
            f"{len(left)} of {len(claims)} replicas do not fit on {len(nodes)} nodes, even if all nodes are "
            f"empty: {left[0].message.partition('. preemption')[0]}",
            "request fewer replicas or less for each, add nodes, or let the autoscaler add them",
        )


@CHECKS.add(Subject.NODES)
def _check_device_plugin(facts: Facts) -> Iterator[Violation]:
    """Check that every node with GPU labels has GPUs in its capacity."""
    name, nodes = facts.settings.gpu_resource_name, facts.get_objects(Subject.NODES)
    without = [deployments.get_name(each) for each in nodes if _lacks_gpus(each, name)]
    if without:
        yield Violation(
            f"{len(without)} nodes have GPU labels but offer no {name}, because no device plugin runs "
            f"there: {', '.join(without[:3])}",
            "helm install nvidia-device-plugin nvidia-device-plugin --repo "
            "https://nvidia.github.io/k8s-device-plugin -n nvidia-device-plugin --create-namespace",
        )


def _lacks_gpus(node: Manifest, name: str) -> bool:
    """True if a node has GPU labels, but its capacity has neither the resource `name` nor MIG slices."""
    labels, capacity = get_mapping(node, "metadata", "labels"), get_mapping(node, "status", "capacity")
    is_labelled = any(get_text(labels, label) not in ("", "false") for label in _PRESENT)
    return is_labelled and not any(each == name or each.startswith(_MIG) for each in capacity)

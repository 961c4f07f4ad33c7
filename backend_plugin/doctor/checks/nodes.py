"""Checks of the Kubernetes nodes: whether each replica, and all replicas together, can be scheduled."""

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.embedded.node_affinity import Taint
from backend_plugin.embedded.nodes import Claim, Node, Unschedulable, read_claim, read_node, schedule
from backend_plugin.embedded.resources import ONE

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


class _Why(enum.Enum):
    """The reasons why a role's pod fits on no node, even if all nodes were empty."""

    SELECTOR = "selector"
    TAINT = "taint"
    NO_DEVICE = "device"
    SIZE = "size"


def _ready(facts: Facts) -> Sequence[Node]:
    return [read_node(each) for each in facts.of(Subject.NODES) if _is_ready(each)]


def _is_ready(node: Manifest) -> bool:
    conditions = entries(section(node, "status"), "conditions")
    ready = any((text(each, "type"), text(each, "status")) == (_READY, "True") for each in conditions)
    return ready and section(node, "spec").get("unschedulable") is not True


def _claim(role: RolePods) -> Claim:
    return read_claim({**role.pod, "metadata": {**section(role.pod, "metadata"), "uid": role.name}})


def _why(claim: Claim, nodes: Sequence[Node]) -> tuple[_Why, Sequence[Node]] | None:
    """Return the first reason that excludes all nodes, and the nodes that were left before it."""
    chosen = [each for each in nodes if claim.wishes.accept(each.name, each.labels)]
    if not chosen:
        return _Why.SELECTOR, nodes
    taking = [each for each in chosen if claim.wishes.untolerated(each.taints) is None]
    if not taking:
        return _Why.TAINT, chosen
    if any(_fits(claim, each.allocatable) for each in taking):
        return None
    devices = [name for name, amount in claim.requests.items() if amount and "/" in name]
    if any(not any(each.allocatable.get(name) for each in taking) for name in devices):
        return _Why.NO_DEVICE, taking
    return _Why.SIZE, taking


def _fits(claim: Claim, has: Mapping[str, int]) -> bool:
    return all(amount <= has.get(name, 0) for name, amount in claim.requests.items())


def _reasons(facts: Facts, wanted: _Why) -> Iterator[tuple[RolePods, Claim, Sequence[Node]]]:
    nodes = _ready(facts)
    for role in facts.task.roles if nodes else ():
        claim = _claim(role)
        found = _why(claim, nodes)
        if found is not None and found[0] is wanted:
            yield role, claim, found[1]


def _none(facts: Facts) -> Iterator[Found]:
    if not _ready(facts):
        yield Found(
            sentence=f"none of {len(facts.of(Subject.NODES))} nodes is ready and accepts pods",
            remedy=_uncordoning(facts.of(Subject.NODES)),
        )


def _uncordoning(nodes: Sequence[Manifest]) -> str:
    cordoned = [
        deployments.name(each) for each in nodes if section(each, "spec").get("unschedulable") is True
    ]
    if cordoned:
        return f"kubectl uncordon {' '.join(cordoned)}"
    return "kubectl describe nodes  # the conditions contain the reason why a node is not ready; or add nodes"


def _unselected(facts: Facts) -> Iterator[Found]:
    for role, claim, nodes in _reasons(facts, _Why.SELECTOR):
        labels = ", ".join(f"{key}={value}" for key, value in claim.wishes.selector.items()) or "its affinity"
        yield Found(
            sentence=f"none of {len(nodes)} nodes matches the selector or affinity of a {role.name}: "
            f"{labels}",
            remedy=_labelling(claim, nodes),
        )


def _labelling(claim: Claim, nodes: Sequence[Node]) -> str:
    change = "change the node selector of the task, its PodTemplate or the settings"
    selector = claim.wishes.selector
    # Prefixed labels are set by Kubernetes or a cloud provider, not by hand.
    if not selector or claim.wishes.terms is not None or any("/" in key for key in selector):
        return f"kubectl get nodes --show-labels  # {change}"
    said = " ".join(f"{key}={value}" for key, value in selector.items())
    return f"kubectl label node {nodes[0].name} --overwrite {said}  # or another node; or {change}"


def _tainted(facts: Facts) -> Iterator[Found]:
    for role, claim, nodes in _reasons(facts, _Why.TAINT):
        by_node = [(each, _untolerated(claim, each)) for each in nodes]
        lasting = [each for each in by_node if not any(map(_is_temporary, each[1]))]
        if lasting:
            _, taints = min(lasting, key=lambda each: (not _fits(claim, each[0].allocatable), len(each[1])))
            remedy = _tolerating(claim, taints)
        else:
            node, taints = by_node[0]
            remedy = (
                f"kubectl describe node {node.name}  # do not tolerate {_key(taints)}: "
                "it is removed from the node when its condition ends"
            )
        yield Found(
            sentence=f"every node that matches a {role.name} has a taint that it does not "
            f"tolerate, such as {', '.join(map(_as_kubectl, taints))}",
            remedy=remedy,
        )


def _untolerated(claim: Claim, node: Node) -> Sequence[Taint]:
    return [each for each in node.taints if claim.wishes.untolerated([each]) is not None]


def _is_temporary(taint: Taint) -> bool:
    """True if a controller sets the taint while a condition of the node lasts."""
    return taint.key.startswith(_TEMPORARY) or taint.key.endswith(_NOT_READY)


def _key(taints: Sequence[Taint]) -> str:
    return next(each.key for each in taints if _is_temporary(each))


def _as_kubectl(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _tolerating(claim: Claim, taints: Sequence[Taint]) -> str:
    """Return settings that make the pods of a role tolerate the taints."""
    of_resources = [each for each in taints if claim.requests.get(each.key)]
    of_all = [each for each in taints if each not in of_resources]
    by_resource = ", ".join(f"{each.key}: [{_toleration(each)}]" for each in of_resources)
    written = [f"resource-tolerations: {{{by_resource}}}"] if of_resources else []
    if of_all:
        written.append(f"default-tolerations: [{', '.join(map(_toleration, of_all))}]")
    return f"write plugins: {{k8s: {{{', '.join(written)}}}}}"


def _toleration(taint: Taint) -> str:
    how = f"operator: Equal, value: {json.dumps(taint.value)}" if taint.value else "operator: Exists"
    return f"{{key: {taint.key}, {how}, effect: {taint.effect}}}"


def _lacking(claim: Claim, nodes: Sequence[Node]) -> list[str]:
    return [
        name
        for name, amount in claim.requests.items()
        if amount and "/" in name and not any(each.allocatable.get(name) for each in nodes)
    ]


def _no_device(facts: Facts) -> Iterator[Found]:
    for role, claim, nodes in _reasons(facts, _Why.NO_DEVICE):
        if not _slices(nodes):
            name = _lacking(claim, nodes)[0]
            yield Found(
                sentence=f"no node for a {role.name} has {name}",
                remedy="kubectl get nodes -o 'custom-columns=NAME:.metadata.name,HAS:.status.allocatable."
                f"{name.replace('.', chr(92) + '.')}'  # then add nodes with it",
            )


def _slices(nodes: Sequence[Node]) -> list[str]:
    return sorted(
        {name for each in nodes for name, has in each.allocatable.items() if name.startswith(_MIG) and has}
    )


def _sliced(facts: Facts) -> Iterator[Found]:
    for role, claim, nodes in _reasons(facts, _Why.NO_DEVICE):
        if slices := _slices(nodes):
            yield Found(
                sentence=f"a {role.name} requests {_lacking(claim, nodes)[0]}, but the nodes have only MIG "
                f"slices: {', '.join(slices)}",
                remedy=f"request one of them in a PodTemplate: resources: {{limits: {{{slices[0]}: "
                f"1}}}}; or write "
                "mig.strategy: single in the device plugin's values",
            )


def _too_large(facts: Facts) -> Iterator[Found]:
    for role, claim, nodes in _reasons(facts, _Why.SIZE):
        lacking = [
            f"{_said(name, amount)} {name} of {_said(name, most)} at most"
            for name, amount in claim.requests.items()
            if amount > (most := max(each.allocatable.get(name, 0) for each in nodes))
        ]
        why = ", ".join(lacking) or "no node has all resources together"
        yield Found(
            sentence=f"a {role.name} requests more than any matching node has, even when empty: {why}",
            remedy="request less in the Resources of the task, or add larger nodes",
        )


def _said(name: str, amount: int) -> str:
    return f"{amount / ONE / 2**30:g}Gi" if name == "memory" else f"{amount / ONE:g}"


def _gang_too_large(facts: Facts) -> Iterator[Found]:
    nodes = _ready(facts)
    fits_alone = nodes and all(_why(_claim(role), nodes) is None for role in facts.task.roles)
    if not fits_alone:
        return
    claims = [
        replace(_claim(role), uid=f"{role.name}-{at}")
        for role in facts.task.roles
        for at in range(role.needed)
    ]
    left = [each for each in schedule(claims, (), nodes) if isinstance(each, Unschedulable)]
    if left:
        yield Found(
            sentence=f"{len(left)} of {len(claims)} replicas do not fit on {len(nodes)} nodes, "
            f"even if all nodes are empty: {left[0].message.partition('. preemption')[0]}",
            remedy="request fewer replicas or less for each, add nodes, or let the autoscaler add them",
        )


def _no_plugin(facts: Facts) -> Iterator[Found]:
    name = facts.settings.gpu_resource_name
    without = [
        deployments.name(each)
        for each in facts.of(Subject.NODES)
        if any(_is_there(section(each, "metadata", "labels"), label) for label in _PRESENT)
        and not any(has == name or has.startswith(_MIG) for has in section(each, "status", "capacity"))
    ]
    if without:
        yield Found(
            sentence=f"{len(without)} nodes have GPU labels but offer no {name}, because no "
            f"device plugin runs there: {', '.join(without[:3])}",
            remedy=_PLUGIN,
        )


def _is_there(labels: Manifest, label: str) -> bool:
    return text(labels, label) not in ("", "false")


def _unhealthy(facts: Facts) -> Iterator[Found]:
    name = facts.settings.gpu_resource_name
    for each in facts.of(Subject.NODES):
        node = read_node(each)
        has = read_node({**each, "status": {"allocatable": section(each, "status", "capacity")}})
        lost = (has.allocatable.get(name, 0) - node.allocatable.get(name, 0)) // ONE
        if lost > 0:
            yield Found(
                sentence=f"{lost} GPUs of node {node.name} are unhealthy: {name}",
                remedy=f"kubectl describe node {node.name}; kubectl drain {node.name} --ignore-daemonsets",
            )


CHECKS: Final = (
    Check(
        id="nodes-none",
        level=Level.ERROR,
        proves="a node is ready and accepts pods",
        judge=_none,
        needs=(Subject.NODES,),
    ),
    Check(
        id="node-selector",
        level=Level.ERROR,
        proves="each role matches a node by selector and affinity",
        judge=_unselected,
        needs=(Subject.NODES, Subject.ROLES),
    ),
    Check(
        id="node-taints",
        level=Level.ERROR,
        proves="each role tolerates the taints of a matching node",
        judge=_tainted,
        needs=(Subject.NODES, Subject.ROLES),
    ),
    Check(
        id="device-missing",
        level=Level.ERROR,
        proves="a node has the devices that a role requests",
        judge=_no_device,
        needs=(Subject.NODES, Subject.ROLES),
    ),
    Check(
        id="mig",
        level=Level.ERROR,
        proves="tasks request whole GPUs only if nodes have whole GPUs",
        judge=_sliced,
        needs=(Subject.NODES, Subject.ROLES),
    ),
    Check(
        id="role-large",
        level=Level.ERROR,
        proves="each role fits on a node",
        judge=_too_large,
        needs=(Subject.NODES, Subject.ROLES),
    ),
    Check(
        id="gang-large",
        level=Level.ERROR,
        proves="all replicas fit on the nodes together",
        judge=_gang_too_large,
        needs=(Subject.NODES, Subject.ROLES),
    ),
    Check(
        id="device-plugin",
        level=Level.ERROR,
        proves="every node with a GPU offers it",
        judge=_no_plugin,
        needs=(Subject.NODES,),
    ),
    Check(
        id="gpu-unhealthy",
        level=Level.WARNING,
        proves="every GPU of a node is available to pods",
        judge=_unhealthy,
        needs=(Subject.NODES,),
    ),
)

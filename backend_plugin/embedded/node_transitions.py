"""Functions that build a node object for each state: new, cordoned, unreachable, restored. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    build_condition,
    with_conditions,
    with_section,
)
from backend_plugin.embedded.scheduling_cycle import CORDON

_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
HOSTNAME: Final = "kubernetes.io/hostname"
# Taints that belong to these states; other taints of a node are kept.
_OF_STATES: Final = (_UNREACHABLE, CORDON.key)


def build_node(
    name: str, *, capacity: Mapping[str, str], labels: Mapping[str, str], now: datetime
) -> Manifest:
    """Build a new node that is ready."""
    node: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **labels}},
        "spec": {},
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }
    return with_conditions(node, _build_ready_condition(now))


def merge_state(old: Manifest, new: Manifest) -> Manifest:
    """Return the node `new` with the identity and the state of the node `old`."""
    conditions = {"conditions": get_mapping(old, "status").get("conditions", [])}
    metadata = {**get_mapping(new, "metadata"), **_select_identity(old)}
    return {
        **new,
        "metadata": metadata,
        "spec": get_mapping(old, "spec"),
        "status": {**get_mapping(new, "status"), **conditions},
    }


def _select_identity(node: Manifest) -> Manifest:
    keys = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = get_mapping(node, "metadata")
    return {key: metadata[key] for key in keys if key in metadata}


def cordon(node: Manifest) -> Manifest:
    """Return the node as cordoned by a user."""
    taints = [*_list_taints(node, CORDON.key), _build_taint(CORDON.key, "NoSchedule")]
    return with_section(node, "spec", unschedulable=True, taints=taints)


def mark_unreachable(node: Manifest, now: datetime) -> Manifest:
    """Return the node as unreachable: its kubelet sends no status."""
    taints = [
        *_list_taints(node, _UNREACHABLE),
        _build_taint(_UNREACHABLE, "NoSchedule"),
        _build_taint(_UNREACHABLE, "NoExecute"),
    ]
    unknown = build_condition(
        "Ready",
        "Unknown",
        reason="NodeStatusUnknown",
        message="Kubelet stopped posting node status.",
        now=now,
    )
    return with_conditions(with_section(node, "spec", taints=taints), unknown)


def is_unreachable(node: Manifest) -> bool:
    """True if the node is not ready."""
    conditions = get_mappings(node, "status", "conditions")
    return any(
        get_text(each, "type") == "Ready" and get_text(each, "status") != "True" for each in conditions
    )


def restore(node: Manifest, now: datetime) -> Manifest:
    """Return the node as ready and schedulable."""
    back: Manifest = {**node, "spec": _without_taints(node, *_OF_STATES)}
    return with_conditions(back, _build_ready_condition(now))


def _without_taints(node: Manifest, *taints: str) -> Manifest:
    """Return the spec of a node without the cordon and without taints with these keys."""
    spec = {
        key: value
        for key, value in get_mapping(node, "spec").items()
        if key not in ("unschedulable", "taints")
    }
    left = _list_taints(node, *taints)
    return {**spec, "taints": left} if left else spec


def _build_ready_condition(now: datetime) -> Manifest:
    return build_condition(
        "Ready", "True", reason="KubeletReady", message="kubelet is posting ready status", now=now
    )


def _list_taints(node: Manifest, *besides: str) -> list[Manifest]:
    return [each for each in get_mappings(node, "spec", "taints") if get_text(each, "key") not in besides]


def _build_taint(key: str, effect: str) -> Manifest:
    return {"key": key, "effect": effect}

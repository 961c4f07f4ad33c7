"""Functions that build a node object for each state: new, cordoned, unreachable, restored. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    build_condition,
    find_condition,
    with_condition,
    with_metadata,
    with_section,
)
from backend_plugin.embedded.scheduling_cycle import CORDON

_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
HOSTNAME: Final = "kubernetes.io/hostname"


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
    return with_condition(node, _build_ready_condition(now))


def merge_state(old: Manifest, new: Manifest) -> Manifest:
    """Return the node `new` with the uid, the versions, the conditions and the spec of the node `old`."""
    keys = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = get_mapping(old, "metadata")
    conditions = get_mapping(old, "status").get("conditions", [])
    merged = {**with_section(new, "status", conditions=conditions), "spec": get_mapping(old, "spec")}
    return with_metadata(merged, **{key: metadata[key] for key in keys if key in metadata})


def cordon(node: Manifest) -> Manifest:
    """Return the node as after `kubectl cordon`: unschedulable and with the taint for that."""
    taints = [*_list_taints(node, CORDON.key), _build_taint(CORDON.key, "NoSchedule")]
    return with_section(node, "spec", unschedulable=True, taints=taints)


def mark_unreachable(node: Manifest, now: datetime) -> Manifest:
    """Return the node as unreachable: its kubelet sends no status."""
    taints = [
        *_list_taints(node, _UNREACHABLE),
        _build_taint(_UNREACHABLE, "NoSchedule"),
        _build_taint(_UNREACHABLE, "NoExecute"),
    ]
    message = "Kubelet stopped posting node status."
    unknown = build_condition("Ready", "Unknown", reason="NodeStatusUnknown", message=message, now=now)
    return with_condition(with_section(node, "spec", taints=taints), unknown)


def is_unreachable(node: Manifest) -> bool:
    """True if the node is not ready."""
    ready = find_condition(get_mappings(node, "status", "conditions"), "Ready")
    return ready.get("status", "True") != "True"


def restore(node: Manifest, now: datetime) -> Manifest:
    """Return the node as ready and schedulable."""
    old = get_mapping(node, "spec")
    spec = {key: value for key, value in old.items() if key not in ("unschedulable", "taints")}
    # Keep all taints except those of a cordoned or unreachable node.
    if left := _list_taints(node, _UNREACHABLE, CORDON.key):
        spec["taints"] = left
    return with_condition({**node, "spec": spec}, _build_ready_condition(now))


def _build_ready_condition(now: datetime) -> Manifest:
    return build_condition(
        "Ready", "True", reason="KubeletReady", message="kubelet is posting ready status", now=now
    )


def _list_taints(node: Manifest, *besides: str) -> list[Manifest]:
    return [each for each in get_mappings(node, "spec", "taints") if get_text(each, "key") not in besides]


def _build_taint(key: str, effect: str) -> Manifest:
    return {"key": key, "effect": effect}

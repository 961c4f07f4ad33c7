"""Functions that build a node object for each state: new, cordoned, unreachable, restored. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.nodes import CORDON
from backend_plugin.embedded.objects import (
    annotation_of,
    condition,
    with_annotations,
    with_conditions,
    with_metadata,
    with_section,
)

_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_HOSTNAME: Final = "kubernetes.io/hostname"
_DISMISSED: Final = "kfpytorch.flyte.org/dismissed"
"""Marks a node that was cordoned because the options no longer include it."""
# Taints that belong to these states; other taints of a node are kept.
_OF_STATES: Final = (_UNREACHABLE, CORDON.key)


def fresh(name: str, *, capacity: Mapping[str, str], labels: Mapping[str, str], now: datetime) -> Manifest:
    """Build a new node that is ready."""
    node: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {_HOSTNAME: name, **labels}},
        "spec": {},
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }
    return with_conditions(node, _ready(now))


def remade(old: Manifest, new: Manifest) -> Manifest:
    """Return the node `new` with the identity and the state of the node `old`."""
    kept = {"conditions": section(old, "status").get("conditions", [])}
    metadata = {**section(new, "metadata"), **_identity(old)}
    return {
        **new,
        "metadata": metadata,
        "spec": _cleared(old, CORDON.key) if annotation_of(old, _DISMISSED) else section(old, "spec"),
        "status": {**section(new, "status"), **kept},
    }


def _identity(node: Manifest) -> Manifest:
    kept = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = section(node, "metadata")
    return {key: metadata[key] for key in kept if key in metadata}


def cordoned(node: Manifest) -> Manifest:
    """Return the node as cordoned by a user."""
    taints = [*_taints(node, CORDON.key), _taint(CORDON.key, "NoSchedule")]
    return with_section(_wanted(node), "spec", unschedulable=True, taints=taints)


def dismissed(node: Manifest) -> Manifest:
    """Return the node, cordoned because the options no longer include it. Its pods keep running."""
    if section(node, "spec").get("unschedulable") is True:  # Keep the cordon of a user.
        return node
    return with_annotations(cordoned(node), {_DISMISSED: "true"})


def lost(node: Manifest, now: datetime) -> Manifest:
    """Return the node as unreachable: its kubelet sends no status."""
    taints = [
        *_taints(node, _UNREACHABLE),
        _taint(_UNREACHABLE, "NoSchedule"),
        _taint(_UNREACHABLE, "NoExecute"),
    ]
    unknown = condition(
        "Ready",
        "Unknown",
        reason="NodeStatusUnknown",
        message="Kubelet stopped posting node status.",
        now=now,
    )
    return with_conditions(with_section(node, "spec", taints=taints), unknown)


def is_lost(node: Manifest) -> bool:
    """True if the node is not ready."""
    conditions = entries(section(node, "status"), "conditions")
    return any(text(each, "type") == "Ready" and text(each, "status") != "True" for each in conditions)


def restored(node: Manifest, now: datetime) -> Manifest:
    """Return the node as ready and schedulable."""
    back: Manifest = {**_wanted(node), "spec": _cleared(node, *_OF_STATES)}
    return with_conditions(back, _ready(now))


def _cleared(node: Manifest, *taints: str) -> Manifest:
    """Return the spec of a node without the cordon and without taints with these keys."""
    spec = {
        key: value for key, value in section(node, "spec").items() if key not in ("unschedulable", "taints")
    }
    left = _taints(node, *taints)
    return {**spec, "taints": left} if left else spec


def _wanted(node: Manifest) -> Manifest:
    """Remove the `_DISMISSED` mark, because the state now comes from a user."""
    annotations = texts(section(node, "metadata"), "annotations")
    if _DISMISSED not in annotations:
        return node
    return with_metadata(
        node, annotations={key: annotations[key] for key in annotations if key != _DISMISSED}
    )


def _ready(now: datetime) -> Manifest:
    return condition(
        "Ready", "True", reason="KubeletReady", message="kubelet is posting ready status", now=now
    )


def _taints(node: Manifest, *besides: str) -> list[Manifest]:
    return [each for each in entries(section(node, "spec"), "taints") if text(each, "key") not in besides]


def _taint(key: str, effect: str) -> Manifest:
    return {"key": key, "effect": effect}

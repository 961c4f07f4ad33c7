"""A node as it is after each thing that may happen to it.

Lives here: PURE; what a node object says when it is made, cordoned, lost, back. Does not: its pods.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded.nodes import CORDON
from backend_plugin.embedded.objects import condition, with_conditions, with_section

_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_HOSTNAME: Final = "kubernetes.io/hostname"
# Those that come and go with what happens to a node; others are its own.
_OF_STATES: Final = (_UNREACHABLE, CORDON.key)


def fresh(name: str, *, capacity: Mapping[str, str], labels: Mapping[str, str], now: datetime) -> Manifest:
    """A node that is there and ready."""
    node: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {_HOSTNAME: name, **labels}},
        "spec": {},
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }
    return with_conditions(node, _ready(now))


def remade(old: Manifest, new: Manifest) -> Manifest:
    """What `new` says of it, in the state in which the `old` one is."""
    kept = {"conditions": section(old, "status").get("conditions", [])}
    metadata = {**section(new, "metadata"), **_identity(old)}
    return {
        **new,
        "metadata": metadata,
        "spec": section(old, "spec"),
        "status": {**section(new, "status"), **kept},
    }


def _identity(node: Manifest) -> Manifest:
    kept = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = section(node, "metadata")
    return {key: metadata[key] for key in kept if key in metadata}


def cordoned(node: Manifest) -> Manifest:
    """It takes no more pods."""
    taints = [*_taints(node, CORDON.key), _taint(CORDON.key, "NoSchedule")]
    return with_section(node, "spec", unschedulable=True, taints=taints)


def lost(node: Manifest, now: datetime) -> Manifest:
    """It does not answer any more."""
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
    """Whether it does not answer."""
    conditions = entries(section(node, "status"), "conditions")
    return any(text(each, "type") == "Ready" and text(each, "status") != "True" for each in conditions)


def restored(node: Manifest, now: datetime) -> Manifest:
    """It answers, and takes pods again."""
    spec = {key: value for key, value in section(node, "spec").items() if key != "unschedulable"}
    own = _taints(node, *_OF_STATES)
    back: Manifest = {**node, "spec": {**spec, "taints": own} if own else _without(spec, "taints")}
    return with_conditions(back, _ready(now))


def _ready(now: datetime) -> Manifest:
    return condition(
        "Ready", "True", reason="KubeletReady", message="kubelet is posting ready status", now=now
    )


def _taints(node: Manifest, *besides: str) -> list[Manifest]:
    return [each for each in entries(section(node, "spec"), "taints") if text(each, "key") not in besides]


def _taint(key: str, effect: str) -> Manifest:
    return {"key": key, "effect": effect}


def _without(spec: Mapping[str, JsonValue], key: str) -> Manifest:
    return {each: value for each, value in spec.items() if each != key}

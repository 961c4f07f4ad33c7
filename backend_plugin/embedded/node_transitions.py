"""Builds the Node objects of an embedded cluster, and copies that are cordoned, unreachable or restored."""

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    find_condition,
    with_annotations,
    with_condition,
    with_metadata,
    with_section,
)
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.resources import GPU, ONE, parse_amounts
from backend_plugin.embedded.scheduling_cycle import CORDON, GPU_INDICES

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
    return _with_ready_condition(node, now)


def merge_state(old: Manifest, new: Manifest) -> Manifest:
    """Return the node `new` with the conditions, the spec and the server-set metadata of the node `old`."""
    keys = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = get_mapping(old, "metadata")
    conditions = get_mapping(old, "status").get("conditions", [])
    merged = {**with_section(new, "status", conditions=conditions), "spec": get_mapping(old, "spec")}
    return with_metadata(merged, **{key: metadata[key] for key in keys if key in metadata})


def cordon(node: Manifest) -> Manifest:
    """Return the node as after `kubectl cordon`: unschedulable, with the taint of unschedulable nodes."""
    taints = [*_list_taints(node, CORDON.key), {"key": CORDON.key, "effect": "NoSchedule"}]
    return with_section(node, "spec", unschedulable=True, taints=taints)


def mark_unreachable(node: Manifest, now: datetime) -> Manifest:
    """Return a copy of the node with the condition and the taints of an unreachable node."""
    taints = [
        *_list_taints(node, _UNREACHABLE),
        *({"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")),
    ]
    message = "Kubelet stopped posting node status."
    tainted = with_section(node, "spec", taints=taints)
    return with_condition(tainted, "Ready", "Unknown", now, reason="NodeStatusUnknown", message=message)


def is_unreachable(node: Manifest) -> bool:
    """True if the node has the condition `Ready` with a status other than True."""
    ready = find_condition(get_mappings(node, "status", "conditions"), "Ready")
    return ready.get("status", "True") != "True"


def restore(node: Manifest, now: datetime) -> Manifest:
    """Return a copy of the node that is ready and schedulable."""
    old = get_mapping(node, "spec")
    spec = {key: value for key, value in old.items() if key not in ("unschedulable", "taints")}
    # Keep all taints except those of a cordoned or unreachable node.
    if left := _list_taints(node, _UNREACHABLE, CORDON.key):
        spec["taints"] = left
    return _with_ready_condition({**node, "spec": spec}, now)


def _with_ready_condition(node: Manifest, now: datetime) -> Manifest:
    message = "kubelet is posting ready status"
    return with_condition(node, "Ready", "True", now, reason="KubeletReady", message=message)


def _list_taints(node: Manifest, *besides: str) -> list[Manifest]:
    return [each for each in get_mappings(node, "spec", "taints") if get_text(each, "key") not in besides]


# The NVIDIA driver creates one directory per GPU here, so that no library or command is needed.
_GPUS: Final = Path("/proc/driver/nvidia/gpus")
# The default pod limit of a kubelet.
_PODS: Final = "110"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def build_nodes(options: EmbeddedOptions, directory: Path, now: datetime) -> Sequence[Manifest]:
    """Build the nodes that the options specify, with the capacity of this machine by default."""
    has = {**_read_capacity(directory), **options.capacity}
    counts = _count_gpus_per_node(options)
    nodes = []
    for index, count in enumerate(counts):
        node = build_node(
            f"node-{index + 1}",
            capacity={**has, GPU: str(count)} if count else has,
            labels={**_build_labels(), **options.labels},
            now=now,
        )
        first = sum(counts[:index])
        indices = ",".join(map(str, range(first, first + count)))
        nodes.append(with_annotations(node, {GPU_INDICES: indices}) if count else node)
    return nodes


def _count_gpus_per_node(options: EmbeddedOptions) -> Sequence[int]:
    if GPU in options.capacity:
        return [parse_amounts(options.capacity).get(GPU, 0) // ONE] * options.nodes
    gpus = len([*_GPUS.iterdir()]) if _GPUS.is_dir() else 0
    each, rest = divmod(gpus, max(1, options.nodes))
    return [each + (index < rest) for index in range(options.nodes)]


def _read_capacity(directory: Path) -> Mapping[str, str]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(cpus),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(directory).total // 1024}Ki",
        "pods": _PODS,
    }


def _build_labels() -> Mapping[str, str]:
    machine = platform.machine()
    return {
        "kubernetes.io/arch": _ARCHITECTURES.get(machine, machine),
        "kubernetes.io/os": platform.system().lower(),
        "node.kubernetes.io/instance-type": "embedded",
    }

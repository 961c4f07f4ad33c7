"""The nodes of an embedded cluster, with the capacity of this machine by default."""

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from backend_plugin.core.values import Manifest
from backend_plugin.embedded import node_transitions
from backend_plugin.embedded.objects import with_annotations
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.resources import GPU, ONE, parse_amounts
from backend_plugin.embedded.scheduling_cycle import GPU_INDICES

# The NVIDIA driver creates one directory per GPU here, so that no library or command is needed.
_GPUS: Final = Path("/proc/driver/nvidia/gpus")
# The default pod limit of a kubelet.
_PODS: Final = "110"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def build_nodes(options: EmbeddedOptions, directory: Path, now: datetime) -> Sequence[Manifest]:
    """Build the nodes that the options specify."""
    has = {**_read_capacity(directory), **options.capacity}
    counts = _count_gpus_per_node(options)
    nodes = []
    for index, count in enumerate(counts):
        node = node_transitions.build_node(
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
    each, rest = divmod(_count_gpus(), max(1, options.nodes))
    return [each + (index < rest) for index in range(options.nodes)]


def _read_capacity(directory: Path) -> Mapping[str, str]:
    """Return the CPUs that this process may use, the memory, and the size of the disk with `directory`."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(cpus),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(directory).total // 1024}Ki",
        "pods": _PODS,
    }


def _count_gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return sum(1 for _ in _GPUS.iterdir()) if _GPUS.is_dir() else 0


def _build_labels() -> Mapping[str, str]:
    """Return the labels that a kubelet would set on this machine."""
    machine = platform.machine()
    return {
        "kubernetes.io/arch": _ARCHITECTURES.get(machine, machine),
        "kubernetes.io/os": platform.system().lower(),
        "node.kubernetes.io/instance-type": "embedded",
    }

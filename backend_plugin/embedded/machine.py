"""The nodes of an emulated cluster, each as large as this machine unless somebody says otherwise."""

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from backend_plugin.core.values import Manifest
from backend_plugin.embedded import node_states
from backend_plugin.embedded.nodes import GPU_INDICES
from backend_plugin.embedded.objects import with_annotations
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.resources import GPU, ONE, amounts

# One directory a GPU, by the driver; there is nothing to be loaded or asked for it.
_GPUS: Final = Path("/proc/driver/nvidia/gpus")
# What a kubelet takes if nobody says otherwise.
_PODS: Final = "110"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def nodes(options: EmbeddedOptions, directory: Path, now: datetime) -> Sequence[Manifest]:
    """The nodes that are wanted, fresh."""
    has = {**_capacity(directory), **options.capacity}
    counts = _gpus_of_each(options)
    found = []
    for index, count in enumerate(counts):
        node = node_states.fresh(
            f"node-{index + 1}",
            capacity={**has, GPU: str(count)} if count else has,
            labels={**_labels(), **options.labels},
            now=now,
        )
        first = sum(counts[:index])
        indices = ",".join(map(str, range(first, first + count)))
        found.append(with_annotations(node, {GPU_INDICES: indices}) if count else node)
    return found


def _gpus_of_each(options: EmbeddedOptions) -> Sequence[int]:
    if GPU in options.capacity:
        return [amounts(options.capacity).get(GPU, 0) // ONE] * options.nodes
    each, rest = divmod(_gpus(), max(1, options.nodes))
    return [each + (index < rest) for index in range(options.nodes)]


def _capacity(directory: Path) -> Mapping[str, str]:
    """Cpus that this process may use, memory, and what the disk of `directory` holds."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(cpus),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(directory).total // 1024}Ki",
        "pods": _PODS,
    }


def _gpus() -> int:
    """How many NVIDIA GPUs there are."""
    return sum(1 for _ in _GPUS.iterdir()) if _GPUS.is_dir() else 0


def _labels() -> Mapping[str, str]:
    """The usual labels of a node that is this machine."""
    machine = platform.machine()
    return {
        "kubernetes.io/arch": _ARCHITECTURES.get(machine, machine),
        "kubernetes.io/os": platform.system().lower(),
        "node.kubernetes.io/instance-type": "embedded",
    }

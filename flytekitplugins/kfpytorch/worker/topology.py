"""Read the resources of this machine, and compute the number of processes of a job on it."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CGROUP = Path("/sys/fs/cgroup")
# One of these files exists if the machine has a kernel driver for GPUs: NVIDIA on Linux and WSL, or AMD.
_DRIVERS: Final = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg", "dev/kfd")
# The training operator sets this variable to the number of processes in the registered task.
_PROCESSES: Final = "PET_NPROC_PER_NODE"
# The program that counts the GPUs. It is a separate process, because a process that has loaded CUDA cannot
# be forked. The tag marks the number in the output, because an import may print other text.
_TAG: Final = "kfpytorch-devices="
_PROGRAM: Final = f"import torch; print('{_TAG}%d' % torch.cuda.device_count())"
# The approximate memory of a rank in training, on top of what it shares with the fork server.
_BYTES_PER_RANK: Final = 512 * 1024 * 1024
# Ranks mostly wait for each other, so a few more ranks than processors are acceptable.
_RANKS_AT_LEAST: Final = 8
_RANKS_PER_PROCESSOR: Final = 2

OVERRIDE: Final = "FLYTE_KFPYTORCH_LOCAL"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The available resources of a machine."""

    processors: int
    memory: int
    """Available memory in bytes."""
    gpus: tuple[str, ...] = ()
    """The GPUs, as named in ``CUDA_VISIBLE_DEVICES``."""

    def compute_max_ranks(self) -> int:
        """Return the maximum number of ranks: one per GPU; without GPUs, memory and processors limit it."""
        if self.gpus:
            return len(self.gpus)
        room = self.memory // _BYTES_PER_RANK
        return max(1, min(room, max(_RANKS_AT_LEAST, _RANKS_PER_PROCESSOR * self.processors)))


def detect_machine(env: Mapping[str, str]) -> Machine:
    """Return the resources of this machine, or of the container in which this process runs."""
    return Machine(processors=count_processors(), memory=_get_available_memory(), gpus=list_gpus(env))


def count_processors() -> int:
    """Return the number of processors that this process may use, up to the CPU limit of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _read_text(_CGROUP / "cpu.max").split()
    if len(limit) == 2 and limit[0].isdigit():
        allowed = min(allowed, max(1, int(limit[0]) // int(limit[1])))
    return allowed


def _get_available_memory() -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read_text(Path("/proc/meminfo")), re.MULTILINE)
    if found is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = int(found[1]) * 1024
    limit, used = _read_text(_CGROUP / "memory.max").strip(), _read_text(_CGROUP / "memory.current").strip()
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def list_gpus(env: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """Return the indexes or UUIDs of the GPUs that ``CUDA_VISIBLE_DEVICES`` in `env` selects.

    If the variable is not set, return all GPUs. `root` is the root of the file system with the files of GPU
    drivers. CUDA is not loaded, because a process that has loaded CUDA cannot be forked.
    """
    if not any((root / driver).exists() for driver in _DRIVERS):
        return ()
    count = _count_nvidia_gpus()
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(map(str, range(count or 0)))
    # As in CUDA, the first invalid name hides all names after it.
    names = [name.strip() for name in visible.split(",")]
    return tuple(itertools.takewhile(lambda name: _is_visible(name, count), names))


def _is_visible(name: str, count: int | None) -> bool:
    if name.isdecimal():
        return count is None or int(name) < count
    return name not in {"", "-1", "NoDevFiles"}


def _count_nvidia_gpus() -> int | None:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=10)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return None
    return len(re.findall(r"^GPU \d+:", listed.stdout, re.MULTILINE))


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The layout of a job whose nodes all run on one machine: the nodes, their processes and devices."""

    nodes: int
    nproc_per_node: int
    devices: tuple[str, ...] = ()
    """``CUDA_VISIBLE_DEVICES`` for each node; empty without GPUs."""
    note: str = ""
    """A message if the layout differs from that of the task, with a way to avoid this; otherwise empty."""

    @property
    def ranks(self) -> int:
        """The number of all processes of the job (the world size)."""
        return self.nodes * self.nproc_per_node


class NoGpu(ValueError):
    """A task requests a process for each GPU, and this machine has none."""


def count_processes(requested: int | str, nodes: int, machine: Machine, most: int | None = None) -> int:
    """Return the number of processes on each of `nodes` nodes that share `machine`.

    If `requested` is a number, return it. For ``"gpu"``, ``"cpu"`` or ``"auto"``, divide the number of GPUs
    or processors by `nodes`. If the user has set a maximum number of ranks, `most`, divide `most` instead.
    The result is at least 1.

    Raises:
        NoGpu: `requested` is ``"gpu"``, the machine has no GPU, and `most` is None.
    """
    if not isinstance(requested, str):
        return requested
    if most is not None:
        return max(1, most // nodes)
    gpus = len(machine.gpus)
    count = {"gpu": gpus, "cpu": machine.processors, "auto": gpus or machine.processors}[requested]
    if not count:
        raise NoGpu(
            "nproc_per_node='gpu' needs a GPU, and this machine has none; write nproc_per_node='auto', or "
            f"set {OVERRIDE}={2 * nodes} for {2 * nodes} ranks without GPUs"
        )
    return max(1, count // nodes)


def count_pod_processes(requested: int | str, env: Mapping[str, str]) -> int:
    """Return the number of processes that this pod starts.

    `requested` is the number itself, or ``"gpu"``, ``"cpu"`` or ``"auto"``. For such a word, a pod of a job
    reads the number from `env`; the registration of the task determined this number. An ordinary pod counts
    its GPUs or processors.

    Raises:
        NoGpu: `requested` is ``"gpu"``, and the pod has no GPU.
    """
    if not isinstance(requested, str):
        return requested
    if "PET_RDZV_ENDPOINT" in env and env.get(_PROCESSES, "").isdecimal():
        return max(1, int(env[_PROCESSES]))
    return _count_pod_devices(requested)


def _count_pod_devices(kind: str) -> int:
    if kind == "cpu":
        return count_processors()
    listed = subprocess.run([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    gpus = int(listed.stdout.rpartition(_TAG)[2])
    if kind == "gpu" and not gpus:
        raise NoGpu(
            "nproc_per_node='gpu' needs a GPU, and this pod has none; request GPUs, such as "
            "@task(requests=Resources(gpu='8')), or write nproc_per_node='auto'"
        )
    return gpus or count_processors()


def fit(nodes: int, nproc_per_node: int, machine: Machine, most: int | None = None) -> Topology:
    """Return the layout of `nodes` nodes with `nproc_per_node` ranks each, reduced to fit on `machine`.

    `most` is the maximum number of ranks, if the user has set it. If fewer ranks are possible, first reduce
    the number of ranks per node, then the number of nodes.
    """
    wanted = nodes * nproc_per_node
    limit = machine.compute_max_ranks() if most is None else most
    if wanted > limit:
        nodes, nproc_per_node = (nodes, limit // nodes) if limit >= nodes else (limit, 1)
    ranks = nodes * nproc_per_node
    return Topology(
        nodes=nodes,
        nproc_per_node=nproc_per_node,
        devices=_assign_devices(machine.gpus, nodes, nproc_per_node),
        note=_format_note(wanted, ranks, machine, most),
    )


def _assign_devices(gpus: Sequence[str], nodes: int, nproc_per_node: int) -> tuple[str, ...]:
    """Return ``CUDA_VISIBLE_DEVICES`` for each node; an empty tuple without GPUs.

    If there is a GPU for each rank, divide the GPUs among the nodes. Otherwise, several ranks share a GPU.
    """
    if not gpus:
        return ()
    if len(gpus) >= nodes * nproc_per_node:
        each = len(gpus) // nodes
        return tuple(",".join(gpus[node * each : (node + 1) * each]) for node in range(nodes))
    return tuple(
        ",".join(
            dict.fromkeys(gpus[(node * nproc_per_node + rank) % len(gpus)] for rank in range(nproc_per_node))
        )
        for node in range(nodes)
    )


def _format_note(wanted: int, ranks: int, machine: Machine, most: int | None) -> str:
    if most is not None:
        uneven = ranks < min(wanted, most)
        return (
            f"{OVERRIDE}={most} does not divide evenly among the nodes: {ranks} ranks run" if uneven else ""
        )
    if wanted == ranks:
        return ""
    size = f"{machine.processors} processor(s) and {machine.memory / 2**30:.1f} GiB of free memory"
    why = f"{len(machine.gpus)} GPU(s)" if machine.gpus else size
    return f"{wanted} ranks scaled down to {ranks}: this machine has {why}; {OVERRIDE}={wanted} runs them all"

"""What this machine has, asked of the operating system: processors, memory, GPUs."""

import itertools
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from flytekitplugins.kfpytorch.worker.topology import Machine

_CGROUP = Path("/sys/fs/cgroup")


def here(env: Mapping[str, str]) -> Machine:
    """This machine, or the share of it that its container may use."""
    return Machine(processors=processors(), memory=_memory(), gpus=gpus(env))


def processors() -> int:
    """Processors that this process may use, also when a container limits its time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _read(_CGROUP / "cpu.max").split()
    if len(limit) == 2 and limit[0].isdigit():
        allowed = min(allowed, max(1, int(limit[0]) // int(limit[1])))
    return allowed


def _memory() -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    if found is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = int(found[1]) * 1024
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that CUDA would see, without loading CUDA: a process that has cannot be forked."""
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        # As CUDA reads it: the first that is none hides all behind it.
        return tuple(itertools.takewhile(lambda name: name not in {"", "-1", "NoDevFiles"}, names))
    if not Path("/proc/driver/nvidia/version").exists():
        return ()
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=10)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(str(index) for index, _ in enumerate(re.findall(r"^GPU \d+:", listed.stdout, re.MULTILINE)))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

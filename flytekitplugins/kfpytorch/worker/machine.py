"""Read the processors, memory and GPUs of this machine, and count the processes of a pod."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flytekitplugins.kfpytorch.worker.topology import Machine, NoGpu

_CGROUP = Path("/sys/fs/cgroup")


def detect_machine(env: Mapping[str, str]) -> Machine:
    """Return the resources of this machine, or of its container."""
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

    If the variable is not set, return all GPUs. `root` is the root directory, in which the files of GPU
    drivers are found. CUDA is not loaded, because a process that has loaded it cannot be forked.
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


# One of these files exists if the machine has a kernel driver for GPUs: NVIDIA on Linux and WSL, or AMD.
_DRIVERS: Final = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg", "dev/kfd")


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


# The training operator sets this variable to the number of processes in the registered task.
_PROCESSES: Final = "PET_NPROC_PER_NODE"
# The program that counts the GPUs. It is a separate process, because a process that has loaded CUDA cannot
# be forked. The tag marks the number in the output, because an import may print other text.
_TAG: Final = "kfpytorch-devices="
_PROGRAM: Final = f"import torch; print('{_TAG}%d' % torch.cuda.device_count())"


def count_pod_processes(asked: int | str, env: Mapping[str, str]) -> int:
    """Return the number of processes that this pod starts.

    `asked` is the number itself, or ``"gpu"``, ``"cpu"`` or ``"auto"``. For such a word, a pod of a job reads
    the number from `env`; it was determined when the task was registered. An ordinary pod counts its GPUs or
    processors.

    Raises:
        NoGpu: `asked` is ``"gpu"``, and the pod has no GPU.
    """
    if not isinstance(asked, str):
        return asked
    if "PET_RDZV_ENDPOINT" in env and env.get(_PROCESSES, "").isdecimal():
        return max(1, int(env[_PROCESSES]))
    if asked == "cpu":
        return count_processors()
    listed = subprocess.run([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    gpus = int(listed.stdout.rpartition(_TAG)[2])
    if asked == "gpu" and not gpus:
        raise NoGpu(
            "nproc_per_node='gpu' needs a GPU, and this pod has none; request GPUs, such as "
            "@task(requests=Resources(gpu='8')), or write nproc_per_node='auto'"
        )
    return gpus or count_processors()

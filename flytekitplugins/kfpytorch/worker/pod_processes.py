"""Resolve the number of processes of a pod, which a config may specify as a word of ``torchrun``."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from flytekitplugins.kfpytorch.worker import machine, topology

# The training operator sets it to the number that the registration of the task specified.
_VARIABLE: Final = "PET_NPROC_PER_NODE"
# Runs in a separate process, because a process that has loaded CUDA cannot be forked. The tag marks the
# number, because an import may print.
_TAG: Final = "kfpytorch-devices="
_PROGRAM: Final = f"import torch; print('{_TAG}%d' % torch.cuda.device_count())"


def count_processes(asked: int | str, env: Mapping[str, str]) -> int:
    """Return the number of processes that this pod starts.

    Args:
        asked: The number, or ``"gpu"``, ``"cpu"`` or ``"auto"``.
        env: The environment of the pod. In a job it contains the number from the registration. In an
            ordinary pod, GPUs or processors are counted.

    Raises:
        NoGpu: The argument is ``"gpu"``, and the pod has no GPU.
    """
    if not isinstance(asked, str):
        return asked
    if "PET_RDZV_ENDPOINT" in env and env.get(_VARIABLE, "").isdecimal():
        return max(1, int(env[_VARIABLE]))
    gpus = 0 if asked == "cpu" else _count_gpus()
    if asked == "gpu" and not gpus:
        raise topology.NoGpu(
            "nproc_per_node='gpu' needs a GPU, and this pod has none; request GPUs, such as "
            "@task(requests=Resources(gpu='8')), or write nproc_per_node='auto'"
        )
    return gpus or machine.count_processors()


def _count_gpus() -> int:
    listed = subprocess.run([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    return int(listed.stdout.rpartition(_TAG)[2])

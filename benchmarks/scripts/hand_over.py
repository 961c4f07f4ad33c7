"""Measure the time from a return in rank 0 until the caller has read the tensor: ``python hand_over.py``.

It prints the seconds, and whether the caller's tensor is in mapped memory. It works with this plugin and with
the published one.
"""

import json
import pickle
import time
from pathlib import Path

import torch
from flytekit import task

from flytekitplugins.kfpytorch import Elastic

FLOATS = 50_000_000  # 200 MB


# Upstream's default interval of 5 s between checks of the ranks would hide the measured time.
@task(task_config=Elastic(nnodes=1, nproc_per_node=2, monitor_interval=0.1))
def build_ones(count: int) -> tuple[float, torch.Tensor]:
    value = torch.ones(count)
    return time.monotonic(), value  # On Linux all processes share this clock.


def measure_hand_over(count: int) -> tuple[float, torch.Tensor]:
    """Return the seconds until the caller has read the whole tensor of `count` numbers, and the tensor."""
    # `execute`, because with both plugins a call would also write the outputs to disk.
    returned_at, value = build_ones.execute(count=count)
    return _read(value) - returned_at, value


def measure_pickle() -> float:
    value = torch.ones(FLOATS)
    began = time.monotonic()
    return _read(pickle.loads(pickle.dumps(value, protocol=5))) - began


def is_mapped(value: torch.Tensor) -> bool:
    """True if the memory of the tensor belongs to a file, on disk or in shared memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, inode, *_ = line.split()
        low, high = (int(address, 16) for address in span.split("-"))
        if low <= value.data_ptr() < high:
            return inode != "0"
    return False


def _read(value: torch.Tensor) -> float:
    if value.sum() != value.numel():
        raise ValueError(f"not the tensor that was sent: {value}")
    return time.monotonic()


if __name__ == "__main__":
    small, _ = measure_hand_over(1)
    large, tensor = measure_hand_over(FLOATS)
    found = {"small": small, "large": large, "mapped": is_mapped(tensor), "pickled": measure_pickle()}
    print(json.dumps(found))

"""Functions that several examples share: they join the process group, and compute a mean over all ranks."""

import os

import torch
import torch.distributed as dist
from torch import Tensor


def join_ranks() -> torch.device:
    """Initialize the process group, and return the device of this rank: its GPU, or the CPU."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def mean_of_ranks(value: Tensor) -> float:
    """Return the mean of a number over all ranks, on every rank."""
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()

"""The program of every rank of a burn-in: all-reduce tensors of several sizes and report the bandwidth.

It needs torch but nothing from this project, because it is passed to ``python -c`` as text. Rank 0 writes
one line of JSON.
"""

import json
import os
import socket
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

MEBI = 1 << 20
SIZES = {"nccl": (1, 16, 256), "gloo": (1, 8, 32)}
"""The sizes of the all-reduced tensors in MiB, by backend of torch.distributed."""
SECONDS = 1.5
"""The approximate seconds that the measurement of one tensor size takes."""
MOST = 20
"""The maximum number of all-reduces of one tensor size."""
KEY = "kfpytorch-burn-in"


def select_device(rank: int) -> torch.device:
    """Return the GPU of this rank, or the CPU if there is no GPU. Ranks share GPUs if there are too few."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def compute_mean(value: float, device: torch.device) -> float:
    """Return the mean of a value over all ranks; this also synchronizes the ranks."""
    total = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total.item()) / dist.get_world_size()


def require_correct_sum(device: torch.device) -> None:
    """Exit with an error if the sum of an all-reduce is wrong."""
    ranks = dist.get_world_size()
    summed = torch.full((MEBI // 4,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(summed)
    if not bool((summed == ranks * (ranks + 1) / 2).all()):
        raise SystemExit(f"the sum over {ranks} ranks is wrong on rank {dist.get_rank()}")


def measure_seconds(tensor: torch.Tensor, times: int) -> float:
    """Return the seconds of one all-reduce, as the mean of all ranks and of `times` repetitions."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(tensor)
    if tensor.is_cuda:
        torch.cuda.synchronize()
    return compute_mean((time.perf_counter() - begin) / times, tensor.device)


def measure_size(mebi: int, device: torch.device) -> dict[str, float]:
    """Measure all-reduces of `mebi` MiB: seconds, and ``algbw`` and ``busbw`` in GB/s as in nccl-tests."""
    tensor = torch.zeros(mebi * MEBI // 4, device=device)
    ranks = dist.get_world_size()
    once = measure_seconds(tensor, 2)
    seconds = measure_seconds(tensor, max(2, min(MOST, int(SECONDS / max(once, 1e-9)))))
    algorithm = mebi * MEBI / seconds / 1e9
    return {
        "mebibytes": mebi,
        "seconds": seconds,
        "algbw": algorithm,
        "busbw": algorithm * 2 * (ranks - 1) / ranks,
    }


def main(timeout: float) -> None:
    """Run one rank of the burn-in. `timeout` is the timeout of torch.distributed operations in seconds.

    The operator or torch's agent has set the environment variables of the rank.
    """
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = select_device(local)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    require_correct_sum(device)
    sizes = [measure_size(mebi, device) for mebi in SIZES[backend]]
    hosts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    if dist.get_rank() == 0:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        result = {"ranks": len(hosts), "hosts": len({*hosts}), "backend": backend, "device": name}
        sys.stdout.write(json.dumps({KEY: {**result, "torch": torch.__version__, "sizes": sizes}}) + "\n")
        sys.stdout.flush()
    dist.barrier()  # All ranks wait until rank 0 has written the result.
    dist.destroy_process_group()


if __name__ == "__main__":
    main(float(sys.argv[1]))

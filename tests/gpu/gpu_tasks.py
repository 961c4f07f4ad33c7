"""Tasks that use one GPU."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from flytekit import task, workflow
from flytekitplugins.kfpytorch import Elastic, Master, PyTorch, Worker

ONE = Elastic(nnodes=1, nproc_per_node=1)


def reduce_on_gpu(backend: str = "nccl") -> list[str]:
    """Return the sum of ones over all ranks, the backend, and the name of the GPU."""
    torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend)
    tensor = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    total = int(tensor.sum().item()) >> 20
    backend = dist.get_backend()
    dist.destroy_process_group()
    return [str(total), backend, torch.cuda.get_device_name()]


@task(task_config=Elastic(nnodes=1, nproc_per_node="gpu"))
def one_per_gpu() -> list[str]:
    return reduce_on_gpu()


@task(task_config=Elastic(nnodes=1, nproc_per_node=1, start_method="fork"))
def forked() -> list[str]:
    return reduce_on_gpu()


@task(task_config=PyTorch(master=Master(), worker=Worker(replicas=3)))
def replicas() -> list[str]:
    return reduce_on_gpu()


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def shared() -> list[str]:
    """Use gloo, so that several ranks may share a GPU."""
    return reduce_on_gpu("gloo")


@task(task_config=ONE)
def hidden() -> list[str]:
    """Hide the GPU from within the task, before CUDA reads the variable."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    dist.init_process_group("nccl")
    backend = dist.get_backend()
    dist.destroy_process_group()
    return [str(torch.cuda.is_available()), backend]


@task(task_config=ONE)
def too_large() -> None:
    torch.empty(1 << 50, device="cuda")


@task(task_config=ONE)
def bad_index() -> None:
    """Raise a device-side assertion, which CUDA reports at a later call."""
    table = torch.zeros(4, device="cuda")
    table[torch.tensor([9], device="cuda")].sum().item()


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def two_on_one() -> None:
    """Start two ranks of nccl on one GPU, which nccl refuses."""
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(1, device="cuda"))


@task(task_config=Elastic(nnodes=1, nproc_per_node=1, max_restarts=1))
def restarted() -> int:
    """Fail once after the use of CUDA, and return the number of the restart that succeeds."""
    torch.ones(1, device="cuda").sum().item()
    restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if restart == 0:
        raise ValueError("once")
    return restart


@task(task_config=ONE)
def loaded() -> float:
    """Read batches with processes of a data loader, into pinned memory."""
    torch.ones(1, device="cuda")
    numbers = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(numbers, 8, num_workers=2, pin_memory=True)
    return float(sum(batch.to("cuda", non_blocking=True).sum() for (batch,) in loader))


@task(task_config=ONE)
def build_weights() -> torch.Tensor:
    return torch.full((3,), 2.0, device="cuda")


@task(task_config=ONE)
def read_weights(weights: torch.Tensor) -> list[str]:
    return [weights.device.type, str(weights.sum().item())]


@workflow
def pass_weights() -> list[str]:
    return read_weights(weights=build_weights())


@task(task_config=ONE)
def holds_memory() -> None:
    held = torch.ones(1 << 28, device="cuda")
    torch.cuda.synchronize()
    Path(os.environ["READY"]).touch()
    time.sleep(600)
    print(held)

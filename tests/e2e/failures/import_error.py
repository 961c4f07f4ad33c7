"""A worker lacks a package that the function imports."""

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        import apex

        apex.train()
    dist.barrier()

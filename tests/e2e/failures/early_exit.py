"""A rank ends before the others, without an error."""

import sys

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        sys.exit(0)
    dist.barrier()

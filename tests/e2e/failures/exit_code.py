"""A replica leaves with an exit code of its own."""

import os
import sys

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker


@task(task_config=PyTorch(worker=Worker(replicas=2)))
def train() -> None:
    dist.init_process_group("gloo")
    if os.environ["RANK"] == "2":
        sys.exit(3)
    dist.barrier()

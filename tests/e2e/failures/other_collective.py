"""Two ranks call different collectives."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    loss = torch.ones(1)
    if dist.get_rank() == 0:
        dist.broadcast(loss, src=1)
    else:
        time.sleep(0.5)
        dist.all_reduce(loss)

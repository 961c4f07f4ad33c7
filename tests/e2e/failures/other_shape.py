"""Two ranks reduce tensors of different types."""

import torch
import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo")
    dtype = torch.float32 if dist.get_rank() == 1 else torch.float64
    dist.all_reduce(torch.ones(4, dtype=dtype))

"""Native code crashes in a rank."""

import ctypes

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        ctypes.string_at(0)
    dist.barrier()

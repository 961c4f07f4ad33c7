"""A rank raises while the other waits for it."""

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        read_batch(7)
    dist.barrier()


def read_batch(number: int) -> None:
    raise ValueError(f"batch {number} has 31 labels for 32 images")

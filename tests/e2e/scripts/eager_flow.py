"""An eager workflow, which flytekit runs in a thread."""

import time

import torch.distributed as dist
from flytekit import eager, task

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def replicas(seconds: float) -> int:
    dist.init_process_group("gloo")
    dist.barrier()  # Rank 0 hosts the store, so it waits until the other rank has joined.
    print("training")
    time.sleep(seconds)
    return dist.get_world_size()


@task(task_config=Elastic(nproc_per_node=2))
def ranks(before: int) -> int:
    dist.init_process_group("gloo")
    return before + dist.get_world_size()


@eager
async def flow(seconds: float) -> int:
    return ranks(before=replicas(seconds=seconds))

"""The source of the tasks of ``kfpytorch demo``; the demo writes it to a file that its pods import.

It is text, so that the import of this module does not import flytekit or torch.
"""

from typing import Final

NAME: Final = "training"
SOURCE: Final = '''\
"""A straight line, learnt on four ranks; and a task that fails."""

import os
import time

from flytekit import task
from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def learn(steps: int = 60) -> float:
    # Imported here, so that this file can be imported without torch.
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = torch.tensor(0.0)
    for step in range(steps):
        x = torch.rand(32, 1)
        loss = (model(x) - (3 * x + 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:2}: loss {loss.item():.3f}", flush=True)
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()
    return round(loss.item(), 4)


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def read_shards() -> int:
    rank = int(os.environ["RANK"])
    if rank == 1:
        raise ValueError("shard 1 has 31 labels for 32 images")
    # A rank waits like this in a collective for a rank that has ended.
    time.sleep(3600)
    return rank
'''

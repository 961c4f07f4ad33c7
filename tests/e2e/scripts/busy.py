"""Ranks that communicate until they are stopped. Each rank writes its process id to a file."""

import os
import time
from pathlib import Path

from flytekit import task

from flytekitplugins.kfpytorch import Elastic, Master, PyTorch, Worker


def work() -> None:
    import torch
    import torch.distributed as dist

    folder, rank = Path(os.environ["PIDS"]), os.environ["RANK"]
    (folder / f"{rank}.part").write_text(str(os.getpid()))
    (folder / f"{rank}.part").rename(folder / rank)
    dist.init_process_group("gloo")
    for _ in range(6000):
        dist.all_reduce(torch.ones(8))
        time.sleep(0.01)


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def nodes() -> None:
    work()


@task(task_config=Elastic(nnodes=1, nproc_per_node=4))
def node() -> None:
    work()


@task(task_config=PyTorch(master=Master(), worker=Worker(replicas=3)))
def replicas() -> None:
    work()

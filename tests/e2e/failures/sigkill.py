"""A rank is killed, as the kernel does when memory runs out."""

import os
import signal

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 2:
        print("loading 200 GB")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()

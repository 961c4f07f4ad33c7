"""A rank never comes to where the others meet."""

import os
import time
from datetime import timedelta

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def train() -> None:
    if os.environ["RANK"] == "1":
        time.sleep(60)
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))

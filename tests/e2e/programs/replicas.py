"""A PyTorch task: a master and a worker."""

import os

import torch
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker

from ranks import gather, rank


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def train(seed: int) -> list[str]:
    torch.manual_seed(seed + rank())
    return gather(f"{rank()} of {os.environ['WORLD_SIZE']}: {torch.rand(()).item()}")

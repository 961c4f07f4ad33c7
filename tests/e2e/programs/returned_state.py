"""A task that returns tensors, and one that takes them."""

import torch
from flytekit import task, workflow
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    gather(None)
    return torch.rand(400, 1000)


@task(task_config=Elastic(nproc_per_node=2))
def mean(tensor: torch.Tensor) -> list[float]:
    return gather(tensor.mean().item())


@workflow
def main(seed: int) -> list[float]:
    return mean(tensor=train(seed=seed))


def plain(seed):
    return mean.task_function(train.task_function(seed))

"""A dynamic workflow that calls an elastic task in a loop."""

import torch
from flytekit import dynamic, task, workflow
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> float:
    torch.manual_seed(seed)
    return sum(gather(torch.rand(()).item()))


@dynamic
def sweep(seed: int) -> list[float]:
    return [train(seed=seed + step) for step in range(2)]


@workflow
def main(seed: int) -> list[float]:
    return sweep(seed=seed)


def plain(seed):
    return [train.task_function(seed + step) for step in range(2)]

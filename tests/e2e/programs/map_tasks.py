"""A map_task over an elastic task."""

import torch
from flytekit import map_task, task, workflow
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> float:
    torch.manual_seed(seed)
    return sum(gather(torch.rand(()).item()))


@workflow
def main(seed: int) -> list[float]:
    return map_task(train)(seed=seeds(seed=seed))


def plain(seed):
    return [train.task_function(each) for each in seeds.task_function(seed)]


@task
def seeds(seed: int) -> list[int]:
    return [seed, seed + 1]

"""Partial functions at the top of the module."""

import functools

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


def scaled(factor, values):
    return (values * factor).sum().item()


twice = functools.partial(scaled, 2.0)
make = functools.partial(torch.full, (3,), dtype=torch.float64)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    return gather(twice(make(fill_value=seed)))

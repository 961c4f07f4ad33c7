"""Relative imports in a package."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

from .model import Scaled


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    from . import model

    torch.manual_seed(seed)
    return [*gather(Scaled()(torch.rand(())).item()), model.SCALE]

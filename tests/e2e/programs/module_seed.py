"""A seed at the top of the module."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

torch.manual_seed(11)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    return gather(torch.rand(()).item() + seed)

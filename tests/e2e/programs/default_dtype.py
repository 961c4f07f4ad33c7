"""A default data type and a number of threads at the top of the module."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

torch.set_default_dtype(torch.float64)
torch.set_num_threads(3)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[str]:
    return gather(f"{torch.ones(1).dtype} {torch.get_num_threads()} {seed}")

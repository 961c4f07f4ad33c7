"""DistributedDataParallel."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import gather, rank


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    gather(None)
    torch.manual_seed(seed)
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(seed + rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return [round(value, 5) for value in model.module.weight.flatten().tolist()]

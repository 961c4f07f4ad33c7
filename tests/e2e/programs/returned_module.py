"""A task that returns a module of torch."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import nn

from ranks import gather


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, values):
        return self.linear(values)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = Small()
    gather(None)
    return model


def summary(model):
    return model(torch.ones(3)).tolist()

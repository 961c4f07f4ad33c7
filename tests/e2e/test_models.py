"""Models as results and inputs of tasks, with every supported release of torch."""

import pytest
import torch
from flytekit import task, workflow
from torch import nn

from flytekitplugins.kfpytorch import Elastic

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


class Net(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([weight]))


@task
def make(weight: float) -> Net:
    return Net(weight)


@task(task_config=Elastic(nproc_per_node=2))
def double(model: nn.Module) -> Net:
    return Net(2 * model.weight.item())


@task
def read(model: nn.Module) -> list[float]:
    return [model.weight.item()]


@workflow
def chain() -> list[float]:
    return read(model=double(model=make(weight=1.5)))


def test_model_passes_through_distributed_and_plain_tasks():
    assert chain() == [3.0]
    model = double(model=Net(0.5))
    assert (type(model), model.weight.tolist()) == (Net, [1.0])

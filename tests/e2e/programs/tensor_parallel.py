"""A device mesh with tensor parallelism."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    gather(None)
    torch.manual_seed(seed)
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    model = parallelize_module(
        nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), init_device_mesh("cpu", (2,)), plan
    )
    return [round(value, 5) for value in model(torch.randn(3, 4)).detach().flatten().tolist()]

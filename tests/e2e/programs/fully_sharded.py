"""FSDP2 on gloo and the CPU."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    gather(None)
    torch.manual_seed(seed)
    model = fully_shard(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return [round(value, 5) for value in model[1].bias.full_tensor().tolist()]

"""One model, trained with DDP, FSDP, FSDP2 and tensor parallelism, with equal losses.

DDP copies the model to every rank; FSDP and FSDP2 shard it. With these three, each rank reads different
samples. With tensor parallelism, each rank has a part of every matrix of the transformer blocks, and all
ranks read the same samples. `train` uses the strategy of its argument. Run all strategies:

    pyflyte run examples/08_parallelism.py train_with_all
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from flytekit import task, workflow
from flytekitplugins.kfpytorch import Elastic
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from examples.language_model import LanguageModel, fit, read_samples
from examples.ranks import join_ranks


def copy_to_ranks(model: LanguageModel, _mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model)


def shard_flat(model: LanguageModel, mesh: DeviceMesh) -> nn.Module:
    device = next(model.parameters()).device
    return FullyShardedDataParallel(model, device_mesh=mesh, device_id=device, use_orig_params=True)


def shard_by_parameter(model: LanguageModel, mesh: DeviceMesh) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)  # The parameters of a block are gathered only while it computes.
    fully_shard(model, mesh=mesh)
    return model


def split_matrices(model: LanguageModel, mesh: DeviceMesh) -> nn.Module:
    # A column-wise layer splits its output by columns. The row-wise layer after it expects this split.
    columns = dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel())
    rows = dict.fromkeys(("out", "down"), RowwiseParallel())
    for block in model.blocks:
        parallelize_module(block, mesh, {**columns, **rows})
    return model


STRATEGIES = {
    "ddp": copy_to_ranks,
    "fsdp": shard_flat,
    "fsdp2": shard_by_parameter,
    "tensor": split_matrices,
}


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train(strategy: str = "ddp") -> float:
    """Return the loss of the last step."""
    device = join_ranks()
    world_size = dist.get_world_size()
    torch.manual_seed(0)  # Every rank starts with the same weights.
    mesh = init_device_mesh(device.type, (world_size,))
    model = STRATEGIES[strategy](LanguageModel().to(device), mesh)
    shards = 1 if strategy == "tensor" else world_size
    loss = fit(model, read_samples("typesseq"), rate=0.3, shards=shards)
    dist.destroy_process_group()
    return loss


class Losses(NamedTuple):
    """The loss of each strategy."""

    ddp: float
    fsdp: float
    fsdp2: float
    tensor: float


@workflow
def train_with_all() -> Losses:
    return Losses(
        train(strategy="ddp"), train(strategy="fsdp"), train(strategy="fsdp2"), train(strategy="tensor")
    )

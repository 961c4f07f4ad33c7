"""Images, with `DistributedDataParallel`: the program of Kubeflow's announcement of Trainer, as a task.

It classifies the digits of scikit-learn, which need no download. Each step uses `BATCH` images, and each rank
has an equal share of them. The losses therefore do not depend on the number of ranks. Run it:

    pyflyte run examples/07_images_ddp.py train --epochs 3
"""

import torch
import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from examples.digits import digits
from examples.ranks import join_ranks, mean_of_ranks

BATCH = 96


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def train(epochs: int = 3) -> list[float]:
    """Return the loss of the last batch of each epoch."""
    # [1] The device and the backend: a GPU and nccl, or the CPU and gloo.
    device = join_ranks()

    # [2] The model. Every rank starts with the weights of rank 0.
    torch.manual_seed(0)
    layers = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    # [3] The data. Each rank reads a different part of each batch.
    dataset = digits()
    sampler = DistributedSampler[tuple[Tensor, ...]](dataset)
    loader = DataLoader(dataset, BATCH // dist.get_world_size(), sampler=sampler, drop_last=True)

    # [4] The training loop.
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loss = torch.zeros(())
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        losses.append(mean_of_ranks(loss))
        if dist.get_rank() == 0:
            print(f"Epoch {epoch} Loss: {losses[-1]:.4f}")

    dist.destroy_process_group()
    return losses

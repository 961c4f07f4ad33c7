"""Handwritten digits on four ranks: two nodes with two processes each, all on this machine.

Shows `Elastic`, data parallel training in which each rank learns from its own share, an accuracy to
which every rank contributes, and progress that rank 0 reports. Run it:

    pyflyte run examples/01_digits_elastic.py train --epochs 30
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset, random_split

ENOUGH = 0.95


class Score(NamedTuple):
    """How well the model learnt."""

    accuracy: float
    loss: float


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def train(epochs: int = 30) -> Score:
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # The same split and the same first weights on every rank.
    learning, testing = random_split(digits(), [0.8, 0.2])
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    share = DistributedSampler(learning)

    for epoch in reported(range(epochs)):
        share.set_epoch(epoch)
        for images, labels in DataLoader(learning, batch_size=32, sampler=share):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

    score = evaluate(model, testing)
    dist.destroy_process_group()
    if score.accuracy < ENOUGH:
        raise ValueError(f"accuracy {score.accuracy:.1%} after {epochs} epochs is under {ENOUGH:.0%}")
    return score


def digits() -> TensorDataset:
    """The 1,797 images that scikit-learn ships; rank 0 reads them for all."""
    data = [None, None]
    if dist.get_rank() == 0:
        from sklearn.datasets import load_digits

        data = list(load_digits(return_X_y=True))
    dist.broadcast_object_list(data)
    images, labels = data
    return TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))


def reported(epochs: range) -> Iterable[int]:
    """The epochs, with a bar on a terminal, else with a line now and then; rank 0 alone speaks."""
    console = Console(quiet=dist.get_rank() != 0)
    if console.is_terminal:
        yield from track(epochs, "training", console=console)
        return
    for epoch in epochs:
        yield epoch
        if (epoch + 1) % 10 == 0:
            console.print(f"training: epoch {epoch + 1} of {len(epochs)}")


def evaluate(model: nn.Module, testing: Dataset[tuple[torch.Tensor, ...]]) -> Score:
    """Accuracy and loss over all of `testing`: each rank looks at its part, then they add up."""
    mine = range(dist.get_rank(), len(testing), dist.get_world_size())
    images, labels = next(iter(DataLoader(Subset(testing, mine), batch_size=len(mine))))
    with torch.no_grad():
        guesses = model(images)
    loss = nn.functional.cross_entropy(guesses, labels, reduction="sum")
    total = torch.tensor([(guesses.argmax(1) == labels).sum(), loss])
    dist.all_reduce(total)
    accuracy, loss = (total / len(testing)).tolist()
    return Score(accuracy, loss)

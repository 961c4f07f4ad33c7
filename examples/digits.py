"""A small model that learns handwritten digits with any number of ranks.

It uses PyTorch without this plugin. The first two examples call `learn` in ranks that the plugin starts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset, random_split

ENOUGH = 0.95

Digits = Subset[tuple[Tensor, ...]]


class Score(NamedTuple):
    """The quality of a model on digits that were not used for training."""

    accuracy: float
    loss: float


def learn(epochs: int) -> Score:
    """Train with a share of the data on each rank, and measure the result.

    Raises:
        ValueError: The accuracy of the model is below `ENOUGH`.
    """
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # Gives every rank the same split and the same initial weights.
    seen, unseen = random_split(digits(), [0.8, 0.2])
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    share = DistributedSampler[tuple[Tensor, ...]](seen)

    for epoch in reported(range(epochs)):
        share.set_epoch(epoch)
        for images, labels in DataLoader(seen, batch_size=32, sampler=share):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    score = measure(model, unseen)
    dist.destroy_process_group()
    if score.accuracy < ENOUGH:
        raise ValueError(f"accuracy {score.accuracy:.1%} after {epochs} epochs is under {ENOUGH:.0%}")
    return score


def digits() -> TensorDataset:
    """Return the 1,797 images of scikit-learn; rank 0 reads them for all ranks."""
    data = [None, None]
    if dist.get_rank() == 0:
        from sklearn.datasets import load_digits

        data = list(load_digits(return_X_y=True))
    dist.broadcast_object_list(data)
    images, labels = data
    return TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))


def reported(epochs: range) -> Iterator[int]:
    """Yield the epochs. On rank 0, show a progress bar on a terminal, else print every fifth epoch."""
    console = Console(quiet=dist.get_rank() != 0)
    if console.is_terminal:
        yield from track(epochs, "training", console=console)
        return
    for epoch in epochs:
        yield epoch
        if (epoch + 1) % 5 == 0:
            console.print(f"training: epoch {epoch + 1} of {len(epochs)}")


def measure(model: nn.Module, unseen: Digits) -> Score:
    """Return accuracy and loss over `unseen`; each rank evaluates a part, and the results are added."""
    part = Subset(unseen, range(dist.get_rank(), len(unseen), dist.get_world_size()))
    images, labels = next(iter(DataLoader(part, batch_size=len(part))))
    with torch.no_grad():
        guesses = model(images)
    loss = nn.functional.cross_entropy(guesses, labels, reduction="sum")
    total = torch.tensor([(guesses.argmax(1) == labels).sum(), loss])
    dist.all_reduce(total)
    accuracy, mean_loss = (total / len(unseen)).tolist()
    return Score(accuracy, mean_loss)

"""A small model that learns handwritten digits with as many ranks as there are.

Plain PyTorch: what `torchrun` can run, too. The first two examples differ in how they start it.
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
    """How well a model does on digits that it has not seen."""

    accuracy: float
    loss: float


def learn(epochs: int) -> Score:
    """Train, each rank on its share of the data, and measure.

    Raises:
        ValueError: The model does not know enough of the digits.
    """
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # The same split and the same first weights on every rank.
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
    """The 1,797 images that scikit-learn ships; rank 0 reads them for all."""
    data = [None, None]
    if dist.get_rank() == 0:
        from sklearn.datasets import load_digits

        data = list(load_digits(return_X_y=True))
    dist.broadcast_object_list(data)
    images, labels = data
    return TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))


def reported(epochs: range) -> Iterator[int]:
    """The epochs; rank 0 shows a bar on a terminal, and elsewhere a line now and then."""
    console = Console(quiet=dist.get_rank() != 0)
    if console.is_terminal:
        yield from track(epochs, "training", console=console)
        return
    for epoch in epochs:
        yield epoch
        if (epoch + 1) % 5 == 0:
            console.print(f"training: epoch {epoch + 1} of {len(epochs)}")


def measure(model: nn.Module, unseen: Digits) -> Score:
    """Accuracy and loss over all of `unseen`: each rank looks at its part, then they add up."""
    part = Subset(unseen, range(dist.get_rank(), len(unseen), dist.get_world_size()))
    images, labels = next(iter(DataLoader(part, batch_size=len(part))))
    with torch.no_grad():
        guesses = model(images)
    loss = nn.functional.cross_entropy(guesses, labels, reduction="sum")
    total = torch.tensor([(guesses.argmax(1) == labels).sum(), loss])
    dist.all_reduce(total)
    accuracy, mean_loss = (total / len(unseen)).tolist()
    return Score(accuracy, mean_loss)

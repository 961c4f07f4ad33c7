"""A small language model and its training loop, which two examples share.

The model predicts the next character of Python's own help pages, which need no download.
"""

from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from examples.ranks import mean_of_ranks

CHARACTERS = 128
LENGTH = 64
"""The number of characters of a sample."""
BATCH = 24
"""The number of samples of a step, over all ranks."""


class Block(nn.Module):
    """One layer of a transformer: attention to the previous characters, then two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width_of_head = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, states: Tensor) -> Tensor:
        """Return the states of the next layer."""
        normal = self.norms[0](states)
        # With tensor parallelism, this rank has only some of the heads.
        query, key, value = (
            linear(normal).unflatten(2, (-1, self.width_of_head)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        attention = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.out(attention.transpose(1, 2).flatten(2))
        result: Tensor = states + self.down(nn.functional.gelu(self.up(self.norms[1](states))))
        return result


class LanguageModel(nn.Module):
    """A transformer with 36,000 parameters by default."""

    def __init__(self, width: int = 32, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(CHARACTERS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the score of each possible next character, for each position."""
        positions = torch.arange(characters.shape[1], device=characters.device)
        states = self.embed(characters) + self.position(positions)
        for block in self.blocks:
            states = block(states)
        scores: Tensor = self.head(states)
        return scores


def read_samples(*names: str) -> TensorDataset:
    """Return parts of `LENGTH` characters of these help pages, each with the part one character later."""
    text = "".join(topics[name] for name in names).encode("ascii", "replace")
    characters = torch.tensor(list(text))
    count = (len(characters) - 1) // LENGTH * LENGTH
    return TensorDataset(characters[:count].view(-1, LENGTH), characters[1 : count + 1].view(-1, LENGTH))


def fit(model: nn.Module, dataset: TensorDataset, *, rate: float, shards: int) -> float:
    """Train for one epoch, and return the loss of the last step.

    Args:
        model: The model, already wrapped for the kind of parallelism.
        dataset: The result of `read_samples`.
        rate: The learning rate.
        shards: The number of parts into which each batch is divided: with data parallelism the number of
            ranks, each of which reads its own part; with tensor parallelism 1, so that all ranks read the
            whole batch.
    """
    device = next(model.parameters()).device
    sampler = DistributedSampler[tuple[Tensor, ...]](dataset, shards, dist.get_rank() % shards)
    # `foreach`, the default on GPUs, updates many parameters at once. With tensor parallelism, only some of
    # them are distributed tensors, and torch cannot update both kinds at once.
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, foreach=False)
    mean = 0.0
    loader = DataLoader(dataset, BATCH // shards, sampler=sampler, drop_last=True)
    for step, (characters, following) in enumerate(loader):
        optimizer.zero_grad()
        scores = model(characters.to(device)).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores, following.to(device).flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        mean = mean_of_ranks(loss)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"Step {step} of {len(loader)} Loss: {mean:.4f}")
    return mean

"""A stream of samples that does not fit into memory, of which every rank reads a part.

An `IterableDataset` has no sampler, so it selects the samples of its rank itself. `DataLoader` copies it into
each of its worker processes, so each process selects its part of the samples of the rank. Run it:

    pyflyte run examples/09_streaming.py train --steps 20
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

import torch
import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from examples.ranks import join_ranks, mean_of_ranks

BATCH = 32
READERS = 2
"""The number of `DataLoader` processes of each rank, which read the stream."""

Sample = tuple[int, Tensor, Tensor]


def read_stream() -> Iterator[Sample]:
    """Yield samples without end. A real task reads files or a queue here."""
    for number in count():
        inputs = torch.rand(8, generator=torch.Generator().manual_seed(number))
        yield number, inputs, inputs.sum(0, keepdim=True)


class Shard(IterableDataset[Sample]):
    """The samples of one rank. Exactly one process of one rank yields each sample."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[Sample]:
        reader = get_worker_info()
        number, readers = (reader.id, reader.num_workers) if reader else (0, 1)
        return islice(read_stream(), number + readers * self.rank, None, readers * self.world_size)


class Outcome(NamedTuple):
    """The loss of the last step, and the number of different samples that the ranks have read."""

    loss: float
    samples: int


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def train(steps: int = 20) -> Outcome:
    device = join_ranks()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    mean, own = 0.0, []
    loader = DataLoader(Shard(rank, world_size), BATCH // world_size, num_workers=READERS)
    # All ranks do the same number of steps: in a further step, a rank would wait for the others' gradients.
    for numbers, inputs, targets in islice(loader, steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        mean = mean_of_ranks(loss)
        own += numbers.tolist()

    of_ranks: list[list[int]] = [[] for _ in range(world_size)]
    dist.all_gather_object(of_ranks, own)
    dist.destroy_process_group()
    return Outcome(mean, len(set().union(*of_ranks)))

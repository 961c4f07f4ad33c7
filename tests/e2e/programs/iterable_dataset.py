"""An IterableDataset that each worker reads a part of."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ranks import gather


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(get_worker_info().id, 10, get_worker_info().num_workers)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[int]]:
    torch.manual_seed(seed)
    batches = DataLoader(Stream(), batch_size=2, num_workers=2)
    return gather([value for batch in batches for value in batch.tolist()])

"""A Dataset raises in a worker process of the DataLoader."""

import torch
import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch.utils.data import DataLoader, Dataset

LABELS = [{0: 1.0, 1: 0.0}, {0: 1.0}]


class Images(Dataset):
    def __init__(self, rank: int) -> None:
        self.labels = LABELS[rank]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        try:
            return torch.tensor(self.labels[index])
        except KeyError as error:
            raise ValueError(f"image {index} has no label") from error


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo")
    for label in DataLoader(Images(dist.get_rank()), num_workers=1):
        dist.all_reduce(label)

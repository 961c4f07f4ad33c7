"""Workers of a DataLoader, with a shuffle and random augmentation."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch.utils.data import DataLoader, Dataset

from ranks import gather


class Noisy(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index + torch.rand(()).item()


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[float]]:
    torch.manual_seed(seed)
    loader = DataLoader(Noisy(), batch_size=3, shuffle=True, num_workers=2)
    return gather([round(value, 6) for batch in loader for value in batch.tolist()])

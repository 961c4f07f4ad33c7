"""Workers of a DataLoader, with random augmentation, a data type and thread count set by the module."""

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch.utils.data import DataLoader, Dataset

from ranks import gather

torch.set_default_dtype(torch.float64)
torch.set_num_threads(3)


class Noisy(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index + torch.rand(()).item()


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[str]]:
    torch.manual_seed(seed)
    loader = DataLoader(Noisy(), batch_size=3, shuffle=True, num_workers=2)
    values = [f"{value:.6f}" for batch in loader for value in batch.tolist()]
    return gather([*values, str(torch.ones(1).dtype), str(torch.get_num_threads())])

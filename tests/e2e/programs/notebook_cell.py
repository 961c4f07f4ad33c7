"""A task of a notebook cell, which exists only in memory, in a ``__main__`` without a file."""

import linecache
import sys

NAME = "/nowhere/ipykernel_1/cell.py"
CELL = """
import os
import random

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import nn

from ranks import gather

SCALE = 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, value):
        return SCALE * self.layer(value)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[float]]:
    torch.manual_seed(seed + int(os.environ["RANK"]))
    random.seed(seed)
    return gather([Model()(torch.ones(2)).item(), random.random(), float(__name__ == "__main__")])
"""


def run_cell():
    """Run the cell as IPython does, and return its task."""
    linecache.cache[NAME] = (len(CELL), None, CELL.splitlines(keepends=True), NAME)
    notebook = sys.modules["__main__"]
    notebook.__dict__.pop("__file__", None)
    notebook.__spec__ = None
    exec(compile(CELL, NAME, "exec"), notebook.__dict__)
    return notebook.train


train = run_cell()

"""An all-reduce that imports torch at the top of the module, for this plugin or the published one."""

import os

import torch
from flytekit import task
from torch import distributed

from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=1, nproc_per_node=int(os.environ["RANKS"])))
def run() -> float:
    distributed.init_process_group("gloo")
    total = torch.tensor(float(distributed.get_rank()))
    distributed.all_reduce(total)
    distributed.destroy_process_group()
    return total.item()

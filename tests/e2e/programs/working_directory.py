"""Files in the working directory of the context: each rank has its own."""

from pathlib import Path

import torch.distributed as dist
from flytekit import current_context, task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather, rank


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[str]:
    gather(None)
    file = Path(current_context().working_directory) / "weights.txt"
    if not file.exists():
        file.write_text(f"{seed} of rank {rank()}")
    dist.barrier()
    return gather(file.read_text())


def plain(seed):
    return [f"{seed} of rank {each}" for each in range(2)]

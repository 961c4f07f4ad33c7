"""A rank that fails once: all ranks start again."""

import os

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather, rank


@task(task_config=Elastic(nproc_per_node=2, max_restarts=1))
def train(seed: int) -> list[str]:
    count = os.environ["TORCHELASTIC_RESTART_COUNT"]
    gather(None)
    if rank() == 1 and count == "0":
        raise ValueError("once")
    return gather(f"{seed} in attempt {count}")

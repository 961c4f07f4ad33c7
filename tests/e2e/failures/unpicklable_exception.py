"""A rank raises what cannot be sent to another process."""

import threading

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic


class Broken(Exception):
    def __init__(self, lock: threading.Lock) -> None:
        super().__init__("the loader's lock is held by nobody")
        self.lock = lock


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise Broken(threading.Lock())
    dist.barrier()

"""Threads in ranks, and a lock and a pool that the module makes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

lock = threading.Lock()
pool = ThreadPoolExecutor(2)
sums = []


def add(number):
    with lock:
        sums.append(torch.full((10,), float(number)).sum().item())


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[float]]:
    list(pool.map(add, range(seed)))
    return gather(sorted(sums))

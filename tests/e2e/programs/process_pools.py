"""Pools of processes in ranks, by fork and by spawn."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


def square(number):
    return number**2


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[int]]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        forked = pool.map(square, range(seed))
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as pool:
        spawned = list(pool.map(square, range(seed)))
    return gather(forked + spawned)

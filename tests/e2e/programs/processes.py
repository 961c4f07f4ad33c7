"""Threads, pools of processes and another program in ranks, with a lock and a pool that the module makes."""

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

lock = threading.Lock()
threads = ThreadPoolExecutor(2)
sums = []


def add(number):
    with lock:
        sums.append(torch.full((10,), float(number)).sum().item())


def square(number):
    return number**2


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[str]]:
    list(threads.map(add, range(seed)))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        forked = pool.map(square, range(seed))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        spawned = list(pool.map(square, range(seed)))
    command = [sys.executable, "-c", f"print({seed} * 2)"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return gather([str(sorted(sums)), str(forked), str(spawned), printed])

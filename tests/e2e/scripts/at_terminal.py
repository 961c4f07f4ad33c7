"""Tasks in which rank 0 uses a terminal: a debugger, a progress bar."""

import os
import sys
import time

from flytekit import task
from rich.progress import track

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def debugged() -> int:
    answer = 40 + int(os.environ["WORLD_SIZE"])
    if os.environ["RANK"] == "0":
        breakpoint()
    return answer


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def bar() -> None:
    if os.environ["RANK"] == "0":
        for _ in track(range(5), description="training"):
            time.sleep(0.05)
        print("terminal", sys.stdout.isatty())

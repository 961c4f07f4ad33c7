"""The function uses something that exists in one process only."""

import threading

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

LOCK = threading.Lock()


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    with LOCK:
        print("never reached")

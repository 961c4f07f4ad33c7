"""A task that has no name in its module is sent as bytes; what its function uses must be picklable."""

import threading

from flytekit import task, workflow
from flytekitplugins.kfpytorch import Elastic

LOCK = threading.Lock()


class Tasks:
    @task(task_config=Elastic(nnodes=1, nproc_per_node=2))
    def fit() -> None:
        with LOCK:
            print("never reached")


@workflow
def train() -> None:
    Tasks.fit()

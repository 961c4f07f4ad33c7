"""Functions that misuse their process."""

import os
import signal

from flytekit import task

from flytekitplugins.kfpytorch import Elastic

TWO = Elastic(nproc_per_node=2)


@task(task_config=TWO)
def takes_another_rank() -> None:
    if os.environ["RANK"] == "1":
        os.environ["RANK"] = "0"
        raise ValueError("I was rank 1")


@task(task_config=TWO)
def kills_its_parent() -> None:
    if os.environ["RANK"] == "0":
        os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()

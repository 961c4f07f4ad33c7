"""Tasks for the tests of user commands; pods import this module as `e2e.embedded.people_tasks`."""

import os
import time
from pathlib import Path

from flytekit import Resources, task

from flytekitplugins.kfpytorch import PyTorch, Worker

FOREVER = 600.0


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=Resources(cpu="100m", mem="400Mi"), retries=2)
def talks(folder: str) -> int:
    """Print one line per rank, in the order of the ranks, and then run until stopped."""
    rank = int(os.environ["RANK"])
    while len(list(Path(folder).glob("turn.*"))) < rank:
        time.sleep(0.02)
    print(f"rank {rank} speaks", flush=True)
    Path(folder, f"turn.{rank}").touch()
    time.sleep(FOREVER)
    return rank

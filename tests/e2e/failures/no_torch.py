"""torch is not installed."""

import sys

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

sys.modules["torch"] = None  # type: ignore[assignment]  # As where it is not installed.


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    print("never reached")

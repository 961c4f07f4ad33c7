"""Arguments with defaults, and a module-level constant as one."""

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

RATE = 0.25


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int, rate: float = RATE, name: str | None = None) -> str:
    return str(gather([seed, rate, name]))

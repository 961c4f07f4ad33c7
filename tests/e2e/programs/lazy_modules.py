"""Lazy modules of flytekit, for an installed and a missing package."""

from flytekit import lazy_module, task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

np = lazy_module("numpy")
missing = lazy_module("a_module_that_nobody_has")


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[float]:
    return gather(float(np.arange(seed).sum()))

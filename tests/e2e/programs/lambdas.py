"""Lambdas and closures at the top of the module."""

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


def make(step):
    return lambda number: number + step


functions = {"add": make(3), "square": lambda number: number**2}


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[dict[str, int]]:
    return gather({name: function(seed) for name, function in functions.items()})

"""An enum as input and output, compared by identity."""

from enum import Enum

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"


@task(task_config=Elastic(nproc_per_node=2))
def train(mode: Mode) -> Mode:
    assert gather(mode is Mode.FAST) == [True, True]
    return Mode.SLOW


def main(seed):
    return train(mode=Mode.FAST)


def plain(seed):
    return train.task_function(Mode.FAST)


def summary(mode):
    return getattr(mode, "value", mode)

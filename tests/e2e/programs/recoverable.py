"""A recoverable error that one rank raises."""

from flytekit import task
from flytekit.exceptions.user import FlyteRecoverableException
from flytekitplugins.kfpytorch import Elastic

from ranks import gather, rank


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> int:
    gather(None)
    if rank() == 1:
        raise FlyteRecoverableException(f"try {seed} again")
    return seed


def main(seed):
    try:
        return train(seed=seed)
    except FlyteRecoverableException as error:
        return "recoverable" if f"try {seed} again" in str(error) else str(error)


def plain(seed):
    return "recoverable"

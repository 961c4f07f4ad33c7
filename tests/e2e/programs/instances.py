"""An instance of a class that the module makes and changes."""

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


class Counter:
    total = 0

    def __init__(self):
        self.calls = []

    def add(self, number):
        Counter.total += number
        self.calls.append(number)
        return self


counter = Counter().add(5)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[str]:
    return gather(str([counter.add(seed).calls, Counter.total, type(counter) is Counter]))

"""The digits of the first example on a master and two workers: three replicas of one rank each.

It uses `PyTorch`. Each replica is a process in a local run and a pod in a cluster, with separate resources.
In a cluster the operator may restart each replica once. Run it:

    pyflyte run examples/02_digits_replicas.py train
"""

from flytekit import Resources, task
from flytekitplugins.kfpytorch import Master, PyTorch, Worker

from examples.digits import Score, learn


@task(
    task_config=PyTorch(
        master=Master(resources=Resources(cpu="1", mem="2Gi")),
        worker=Worker(replicas=2, resources=Resources(cpu="1", mem="1Gi"), num_retries=1),
    )
)
def train(epochs: int = 20) -> Score:
    return learn(epochs)

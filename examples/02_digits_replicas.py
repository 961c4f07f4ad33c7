"""The digits of the first example on a master and two workers: three replicas of one rank each.

Shows `PyTorch`: each replica is a process here and a pod in a cluster, with resources of its own;
there, the operator may restart each of them once. Run it:

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

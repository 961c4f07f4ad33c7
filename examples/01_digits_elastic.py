"""Handwritten digits on four ranks: two nodes with two processes each, in a local run on one machine.

`Elastic` starts the ranks with torch's elastic launcher, as `torchrun --nnodes 2 --nproc-per-node 2` does.
The training with `DistributedDataParallel` and a progress bar is in `digits.py`. Run it:

    pyflyte run examples/01_digits_elastic.py train --epochs 20
"""

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from examples.digits import Score, learn


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def train(epochs: int = 20) -> Score:
    return learn(epochs)

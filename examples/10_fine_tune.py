"""A pretrained language model that learns another subject.

The first task trains the model and returns its weights as a file. The second task loads them on every rank,
and continues with other text. In both tasks only rank 0 writes the file. Run it:

    pyflyte run examples/10_fine_tune.py pretrain_and_fine_tune
"""

from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from flytekit import current_context, task, workflow
from flytekit.types.file import FlyteFile
from flytekitplugins.kfpytorch import Elastic
from torch.nn.parallel import DistributedDataParallel

from examples.language_model import LanguageModel, fit, read_samples
from examples.ranks import join_ranks


class Trained(NamedTuple):
    """The loss of the last step, and the weights."""

    loss: float
    weights: FlyteFile


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def pretrain() -> Trained:
    return train("formatstrings", rate=0.3)


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def fine_tune(weights: FlyteFile) -> Trained:
    return train("string-methods", rate=0.1, weights=weights)


@workflow
def pretrain_and_fine_tune() -> tuple[float, float]:
    pretrained = pretrain()
    return pretrained.loss, fine_tune(weights=pretrained.weights).loss


def train(subject: str, *, rate: float, weights: FlyteFile | None = None) -> Trained:
    device = join_ranks()
    torch.manual_seed(0)
    model = LanguageModel().to(device)
    if weights:
        model.load_state_dict(torch.load(weights.download(), map_location=device))
    parallel = DistributedDataParallel(model)
    loss = fit(parallel, read_samples(subject), rate=rate, shards=dist.get_world_size())
    path = Path(current_context().working_directory, "weights.pt")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.destroy_process_group()
    return Trained(loss, FlyteFile(str(path)))

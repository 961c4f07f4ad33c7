"""Seeds of random and numpy; identifiers that differ between ranks."""

import random
import secrets
import uuid

import numpy as np
import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather, rank


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> str:
    unseeded = (
        random.random(),
        np.random.rand(),
        torch.rand(()).item(),
        uuid.uuid4().hex,
        secrets.token_hex(8),
    )
    differ = [len(set(values)) for values in zip(*gather(unseeded), strict=True)]
    random.seed(seed + rank())
    np.random.seed(seed + rank())
    seeded = [random.random(), float(np.random.rand()), random.sample(range(100), 3)]
    return str([differ, gather(seeded)])

"""A training that fails once and resumes from its checkpoint.

`max_restarts=1`: when a rank fails, all ranks of the node start again, and rank 0 reads the local file that
it wrote. `retries=2` has an effect in a cluster only: if a rank raises `FlyteRecoverableException` after the
last restart, Flyte starts a new attempt in new pods, which reads Flyte's checkpoint. Run it:

    pyflyte run examples/04_checkpoint_resume.py train --epochs 6 --breaks_after 3
"""

import os
import tempfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from flytekit import current_context, task
from flytekit.exceptions.user import FlyteRecoverableException
from flytekitplugins.kfpytorch import Elastic
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Outcome(NamedTuple):
    """The result of the training."""

    resumed_after: int
    """The number of epochs that were done when the ranks started for the last time."""
    loss: float


@task(task_config=Elastic(nnodes=1, nproc_per_node=2, max_restarts=1), retries=2)
def train(epochs: int = 6, breaks_after: int = 3, folder: str = tempfile.gettempdir()) -> Outcome:
    dist.init_process_group("gloo")
    file = Path(folder, "04_checkpoint.pt")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    inputs = torch.rand(64, 8)
    targets = inputs.sum(1, keepdim=True)
    model = nn.Linear(8, 1)
    done = resume(model, file)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parallel = DistributedDataParallel(model)  # Every rank starts with the weights of rank 0.

    loss = torch.zeros(())
    for epoch in range(done, epochs):
        if epoch == breaks_after and is_first_start() and rank == 1:
            raise FlyteRecoverableException(f"rank 1 lost its data after {epoch} epochs")
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if rank == 0:
            save(model, epoch + 1, file)
        dist.barrier()  # All ranks wait until the epoch is saved.

    dist.destroy_process_group()
    return Outcome(done, loss.item())


def is_first_start() -> bool:
    return os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def save(model: nn.Module, done: int, file: Path) -> None:
    """Save the state in a local file for a restart, and as Flyte's checkpoint for a new attempt."""
    state = BytesIO()
    torch.save({"done": done, "model": model.state_dict()}, state)
    part = file.with_suffix(".part")
    part.write_bytes(state.getvalue())
    part.replace(file)  # A reader never finds an incomplete file.
    current_context().checkpoint.write(state.getvalue())


def resume(model: nn.Module, file: Path) -> int:
    """Restore the last saved state on rank 0, and return the number of epochs done on every rank."""
    done = torch.tensor(0)
    if dist.get_rank() == 0:
        saved = current_context().checkpoint.read() if is_first_start() else file.read_bytes()
        if saved:
            state = torch.load(BytesIO(saved))
            model.load_state_dict(state["model"])
            done.fill_(state["done"])
        print(f"{done} epochs are done")
    dist.broadcast(done, src=0)
    return int(done)

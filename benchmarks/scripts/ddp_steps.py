"""A training loop with DistributedDataParallel, which prints rank 0's median step of each turn in seconds.

Two of these run in parallel and take turns. The variables MINE and THEIRS are the paths of named pipes. Each
program waits for a byte in MINE before it trains, and then writes one to THEIRS.
"""

import json
import os
import statistics
import time
from pathlib import Path

WARM_UP, STEPS = 10, 50
# Some milliseconds of arithmetic and 3 MB of gradients per step.
WIDTH, BATCH = 512, 64


def median_steps() -> list[float]:
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(rank)
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    features, wanted = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return time.perf_counter() - began

    medians = []
    with Path(os.environ["MINE"]).open("rb", 0) as mine, Path(os.environ["THEIRS"]).open("wb", 0) as theirs:
        for _ in range(int(os.environ["TURNS"])):
            if rank == 0:
                mine.read(1)
            distributed.barrier()
            seconds = [step() for _ in range(WARM_UP + STEPS)]
            medians.append(statistics.median(seconds[WARM_UP:]))
            distributed.barrier()
            if rank == 0:
                theirs.write(b".")
    distributed.destroy_process_group()
    return medians


if __name__ == "__main__":
    medians = median_steps()
    if os.environ["RANK"] == "0":
        print(json.dumps(medians))
else:
    from flytekit import task

    from flytekitplugins.kfpytorch import Elastic

    run = task(median_steps, task_config=Elastic(nnodes=1, nproc_per_node=int(os.environ["RANKS"])))

"""A training loop with DistributedDataParallel; the result is rank 0's median step in seconds."""

import os
import statistics
import time

WARM_UP = 50
STEPS = 200
# Some milliseconds of arithmetic and three megabytes of gradients in a step.
WIDTH, BATCH = 512, 64


def median_step() -> float:
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")
    torch.manual_seed(distributed.get_rank())
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    features, wanted = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    seconds = []
    for _ in range(WARM_UP + STEPS):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    distributed.destroy_process_group()
    return statistics.median(seconds[WARM_UP:])


if __name__ == "__main__":
    step = median_step()
    if os.environ["RANK"] == "0":
        print(step)
else:
    from flytekit import task

    from flytekitplugins.kfpytorch import Elastic

    run = task(median_step, task_config=Elastic(nnodes=1, nproc_per_node=int(os.environ["RANKS"])))

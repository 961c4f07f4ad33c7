"""An all-reduce, torch imported inside the function: run by torchrun, and as a task by both plugins."""

import os


def all_reduce() -> float:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    total = torch.tensor(float(distributed.get_rank()))
    distributed.all_reduce(total)
    distributed.destroy_process_group()
    return total.item()


if __name__ == "__main__":
    # torchrun must not pay for flytekit.
    print(f"The sum is {all_reduce()}")
else:
    from flytekit import task

    from flytekitplugins.kfpytorch import Elastic

    train = task(all_reduce, task_config=Elastic(nnodes=1, nproc_per_node=int(os.environ["RANKS"])))

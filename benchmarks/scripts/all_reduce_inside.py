"""An all-reduce that imports torch inside the function, for torchrun, this plugin or the published one."""

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
    total = all_reduce()
    if os.environ["RANK"] == "0":
        print(total)
else:
    # torchrun runs the file as `__main__`, so it does not import flytekit.
    from flytekit import task

    from flytekitplugins.kfpytorch import Elastic

    run = task(all_reduce, task_config=Elastic(nnodes=1, nproc_per_node=int(os.environ["RANKS"])))

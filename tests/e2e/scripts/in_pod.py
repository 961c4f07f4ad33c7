"""Tasks as a pod runs them, with pyflyte-execute."""

import sys
import time
from pathlib import Path

from flytekit import task

from flytekitplugins.kfpytorch import Elastic

# The path of `listening_sockets`, which pytest does not set in this process.
sys.path.append(str(Path(__file__).parents[2]))

PATIENCE = {"join_timeout": 4, "timeout": 30}


@task(task_config=Elastic(nnodes=2, nproc_per_node="auto", rdzv_configs=PATIENCE))
def elastic(what: str) -> int:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank} of {dist.get_world_size()}", flush=True)
    if what == "error" and rank == 3:
        raise ValueError("three is out")
    if what == "long":
        time.sleep(60)
    dist.barrier()
    return 7


@task(task_config=Elastic(nproc_per_node=2))
def alone(what: str) -> int:
    """Return 100, and one more for each socket of the run that other machines can connect to."""
    import torch.distributed as dist
    from listening_sockets import sockets_of_run

    dist.init_process_group("gloo")
    inside, outside = sockets_of_run("KFPYTORCH_TEST_MARK")
    dist.barrier()
    return 100 + len(outside) if inside else 0

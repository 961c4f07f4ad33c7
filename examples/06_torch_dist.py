"""The distributed environment of every rank: three nodes with two processes each.

It is the first program of Kubeflow Trainer's PyTorch guide, as a task. A local run prints the lines of rank 0
and the path of a directory with a log file for each rank. In a cluster,
`kfpytorch logs JOB --node 1` prints the lines of the second node. Run it:

    pyflyte run examples/06_torch_dist.py get_torch_dist
"""

import os

import torch
import torch.distributed as dist
from flytekit import Resources, task
from flytekitplugins.kfpytorch import Elastic


@task(task_config=Elastic(nnodes=3, nproc_per_node=2), limits=Resources(cpu="2", mem="2Gi"))
def get_torch_dist() -> int:
    device, backend = ("cuda", "nccl") if torch.cuda.is_available() else ("cpu", "gloo")
    dist.init_process_group(backend=backend)

    world_size = dist.get_world_size()
    print("PyTorch Distributed Environment")
    print(f"Using device: {device}")
    print(f"WORLD_SIZE: {world_size}")
    print(f"RANK: {dist.get_rank()}")
    print(f"LOCAL_RANK: {os.environ['LOCAL_RANK']}")

    # If a rank left while another rank still connects to it, the other rank would fail.
    dist.barrier()
    dist.destroy_process_group()
    return world_size

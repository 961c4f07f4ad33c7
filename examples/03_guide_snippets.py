"""Every Python snippet of Flyte's published guide to this plugin, unchanged, in one file.

In a local run each replica is a process, and gloo replaces nccl on a machine without a GPU. Run one of:

    pyflyte run examples/03_guide_snippets.py single_node_wf
    pyflyte run examples/03_guide_snippets.py distributed_wf --num_epochs 5
    pyflyte run examples/03_guide_snippets.py elastic_training
"""

# The snippets keep the style of the guide.
# ruff: noqa: ARG001, C408, E402, F401, I001
# mypy: disable-error-code="no-any-return,no-redef"
# fmt: off

# ---- Single-worker PyTorch task
from flytekit import task, workflow
from flytekitplugins.kfpytorch import PyTorch, Worker


@task(
    task_config=PyTorch(
        worker=Worker(replicas=1),
    )
)
def single_node_training() -> float:
    import torch
    x = torch.tensor([1.0, 2.0, 3.0])
    return x.mean().item()


@workflow
def single_node_wf() -> float:
    return single_node_training()


# ---- Multi-worker distributed training
from flytekit import task, workflow, Resources
from flytekitplugins.kfpytorch import PyTorch, Worker, Master


@task(
    task_config=PyTorch(
        master=Master(num_retries=3),
        worker=Worker(
            replicas=4,
            resources=Resources(
                cpu="4",
                mem="16Gi",
                gpu="1",
            ),
        ),
        run_policy=dict(
            clean_pod_policy="Running",
        ),
    ),
    requests=Resources(cpu="2", mem="4Gi"),
    limits=Resources(cpu="4", mem="8Gi"),
)
def distributed_training(num_epochs: int = 10) -> float:
    import os
    import torch
    import torch.distributed as dist

    # Initialize the process group
    dist.init_process_group(backend="nccl")
    rank = dist.get_rank()
    world_size = dist.get_world_size()

    # Training code here
    local_loss = torch.tensor(float(rank))
    dist.all_reduce(local_loss, op=dist.ReduceOp.SUM)
    avg_loss = local_loss.item() / world_size

    dist.destroy_process_group()
    return avg_loss


@workflow
def distributed_wf(num_epochs: int = 10) -> float:
    return distributed_training(num_epochs=num_epochs)


# ---- Elastic training (torchrun)
from flytekitplugins.kfpytorch import Elastic


@task(
    task_config=Elastic(
        nnodes=2,
        nproc_per_node=4,
        start_method="spawn",
    )
)
def elastic_training() -> float:
    import torch
    return torch.cuda.device_count() * 1.0


# ---- Troubleshooting
task_config=PyTorch(
    worker=Worker(replicas=4),
    run_policy=dict(
        active_deadline_seconds=3600,  # 1 hour timeout
    ),
)

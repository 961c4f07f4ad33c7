"""The Python snippets of the published guide, unchanged and in one file, run by `pyflyte run`.

The copies below are exact. The last one is a fragment of a call that is also a valid statement.
"""

from pathlib import Path

import pytest

from e2e.conftest import Pyflyte

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.torch

SINGLE_WORKER = """\
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
"""

MULTI_WORKER = """\
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
"""

ELASTIC = """\
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
"""

TROUBLESHOOTING = """\
task_config=PyTorch(
    worker=Worker(replicas=4),
    run_policy=dict(
        active_deadline_seconds=3600,  # 1 hour timeout
    ),
)
"""

SNIPPETS = (SINGLE_WORKER, MULTI_WORKER, ELASTIC, TROUBLESHOOTING)


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    file = tmp_path / "guide.py"
    file.write_text("\n\n".join(SNIPPETS))
    return file


@pytest.mark.parametrize(
    ("entity", "layout", "printed"),
    [
        ("single_node_wf", "2 replicas", "2.0"),  # The master counts as a replica.
        ("distributed_wf", "5 replicas", "2.0"),  # The mean of 0, 1, 2, 3 and 4.
        ("elastic_training", "2 nodes x 4", "0.0"),  # The number of GPUs that rank 0 detects.
    ],
)
def test_the_guide_runs_unchanged(
    pyflyte: Pyflyte, pasted: Path, entity: str, layout: str, printed: str
) -> None:
    # Hide all GPUs and start all ranks, so that the result does not depend on the machine.
    ran = pyflyte.run(pasted, entity, CUDA_VISIBLE_DEVICES="", FLYTE_KFPYTORCH_LOCAL="8")
    assert ran.code == 0, ran.err
    assert f": {layout} on this machine (CPU, gloo)" in ran.err
    assert printed in ran.out.splitlines()
    assert ran.err.count("gloo replaces nccl") == entity.startswith("distributed")


def test_the_example_holds_the_guide_to_the_letter() -> None:
    example = (ROOT / "examples/03_guide_snippets.py").read_text()
    assert [snippet for snippet in SNIPPETS if snippet not in example] == []

"""Tasks that use only upstream's config fields; their pods import this module."""

from flytekit import Resources, task

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker

SMALL = Resources(cpu="100m", mem="2Gi")


def where() -> str:
    import flytekitplugins.kfpytorch.task

    return str(flytekitplugins.kfpytorch.task.__file__)


@task(task_config=Elastic(nnodes=2, nproc_per_node=1, monitor_interval=1), requests=SMALL)
def elastic(value: int) -> tuple[int, str]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor(value + dist.get_rank())
    dist.all_reduce(total)
    return int(total.item()), where()


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=SMALL)
def replicas(value: int) -> tuple[int, str]:
    return value, where()


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=SMALL)
def fails(labels: int) -> int:
    if labels != 32:
        raise ValueError(f"batch 7 has {labels} labels for 32 images")
    return labels

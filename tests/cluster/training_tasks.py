"""Small training tasks, as a user would write them."""

import os
import sys
import time
from pathlib import Path

from flytekit import PodTemplate, Resources, task
from flytekit.exceptions.user import FlyteRecoverableException
from kubernetes import client

from flytekitplugins.kfpytorch import Dataset, Elastic, Model, PyTorch, TrainJob, Worker

SMALL = Resources(cpu="100m", mem="400Mi")


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=SMALL)
def succeeds(value: int) -> str:
    return f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: {value}"


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=SMALL)
def installs() -> str:
    """Return the version of a package that a test adds to the task config."""
    import tiny_one

    return str(tiny_one.VERSION)


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=SMALL, retries=2)
def fails(labels: int) -> int:
    if labels != 32:
        raise ValueError(f"batch 7 has {labels} labels for 32 images")
    return labels


@task(task_config=PyTorch(worker=Worker(replicas=0)), requests=SMALL, retries=1)
def recovers(value: int) -> int:
    if os.environ["FLYTE_ATTEMPT_NUMBER"] == "0":
        raise FlyteRecoverableException("the data server closed the connection")
    return value + 1


def written_sizes_until(stop_file: str) -> int:
    """Run all-reduce steps, and write the world size after each, until the file `stop_file` exists."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    while True:
        over = torch.tensor(int(Path(stop_file).exists()))
        dist.all_reduce(over)
        Path(f"{stop_file}.size").write_text(str(dist.get_world_size()))
        if over.item():
            return dist.get_world_size()
        time.sleep(0.2)


TWO_NODES = {"task_config": Elastic(nnodes=2, nproc_per_node=1), "requests": Resources(cpu="100m", mem="2Gi")}


@task(**TWO_NODES, retries=1)
def reduces_until(stop_file: str) -> int:
    return written_sizes_until(stop_file)


@task(
    **TWO_NODES,
    pod_template=PodTemplate(
        primary_container_name="pytorch",
        pod_spec=client.V1PodSpec(
            containers=[client.V1Container(name="pytorch")],
            tolerations=[
                client.V1Toleration(
                    key=f"node.kubernetes.io/{key}",
                    operator="Exists",
                    effect="NoExecute",
                    # The default of most clusters; the cluster of these tests uses seconds.
                    toleration_seconds=300,
                )
                for key in ("not-ready", "unreachable")
            ],
        ),
    ),
)
def reduces_until_on_patient_pods(stop_file: str) -> int:
    return written_sizes_until(stop_file)


def spread(name: str) -> PodTemplate:
    """Return a template for pods of which each node gets at most one."""
    term = client.V1PodAffinityTerm(
        topology_key="kubernetes.io/hostname",
        label_selector=client.V1LabelSelector(match_labels={"spread": name}),
    )
    apart = client.V1PodAntiAffinity(required_during_scheduling_ignored_during_execution=[term])
    return PodTemplate(
        primary_container_name="main",
        labels={"spread": name},
        pod_spec=client.V1PodSpec(
            containers=[client.V1Container(name="main")], affinity=client.V1Affinity(pod_anti_affinity=apart)
        ),
    )


@task(
    # The loss of a node fails the processes of the others, which counts as one of their restarts.
    task_config=Elastic(nnodes="1:2", max_restarts=3, rdzv_configs={"last_call_timeout": 2}),
    requests=Resources(cpu="100m", mem="2Gi"),
    pod_template=spread("sizes"),
)
def grows_and_shrinks(stop_file: str) -> int:
    return written_sizes_until(stop_file)


@task(
    task_config=Elastic(nnodes=2, nproc_per_node=2),
    requests=Resources(cpu="1", mem="2Gi"),
    pod_template=spread("apart"),
)
def reduces_apart() -> None:
    """A task for a burn-in over the network of the nodes."""


@task(task_config=Elastic(nnodes=3, nproc_per_node=2), requests=Resources(cpu="100m", mem="1Gi"))
def shows_the_ranks() -> int:
    """The first program of the guide to PyTorch on Kubeflow Trainer."""
    import torch
    import torch.distributed as dist

    device, backend = ("cuda", "nccl") if torch.cuda.is_available() else ("cpu", "gloo")
    dist.init_process_group(backend=backend)
    print("PyTorch Distributed Environment")
    print(f"Using device: {device}")
    print(f"WORLD_SIZE: {dist.get_world_size()}")
    print(f"RANK: {dist.get_rank()}")
    print(f"LOCAL_RANK: {os.environ['LOCAL_RANK']}")
    return dist.get_world_size()


@task(
    task_config=Elastic(nnodes=2, nproc_per_node=2, train_job=TrainJob(framework="mpi")),
    requests=Resources(cpu="100m", mem="2Gi"),
    pod_template=spread("mpi"),
)
def reduces_with_mpi(value: int) -> int:
    """Return the sum over all ranks."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    print(f"rank {world.rank} of {world.size}")
    if value < 0 and world.rank == world.size - 1:
        raise ValueError("the learning rate is negative")
    return int(world.allreduce(value + world.rank))


@task(task_config=PyTorch(worker=Worker(replicas=1)), requests=SMALL)
def says_nothing() -> None:
    """A task for simulated pods."""


@task(
    task_config=PyTorch(worker=Worker(replicas=1)),
    requests=Resources(cpu="100m", mem="400Mi", gpu="64"),
    limits=Resources(gpu="64"),
)
def asks_too_much() -> None:
    """A task that requests more GPUs than any node has."""


@task(
    task_config=Elastic(nnodes=2, nproc_per_node=2, train_job=TrainJob(framework="jax")),
    pod_template=spread("jax"),
    requests=Resources(cpu="100m", mem="2Gi"),
    environment={"JAX_PLATFORMS": "cpu"},
)
def reduces_with_jax(value: int, packages: str) -> int:
    """Return the sum over all processes, with jax from a folder of packages."""
    sys.path.append(packages)
    import jax

    env = os.environ
    jax.distributed.initialize(
        env["JAX_COORDINATOR_ADDRESS"], int(env["JAX_NUM_PROCESSES"]), int(env["JAX_PROCESS_ID"])
    )
    from jax.experimental import multihost_utils

    process = jax.process_index()
    print(f"process {process} of {jax.process_count()}")
    if value < 0:
        if process == 2:
            raise ValueError("the learning rate is negative")
        multihost_utils.sync_global_devices("the other processes fail")
    total = multihost_utils.process_allgather(jax.numpy.int32(value + process)).sum()
    return int(total)


@task(
    task_config=PyTorch(
        worker=Worker(replicas=1),
        train_job=TrainJob(
            dataset=Dataset(uri="s3://flyte/numbers", secret="store"),
            model=Model(uri="s3://flyte/factor", secret="store"),
            storage="1Gi",
        ),
    ),
    pod_template=spread("data"),
    requests=SMALL,
)
def reads_loaded_data() -> int:
    """Return the sum of the numbers of the data set, times the factor of the model; every rank reads both."""
    numbers = Path(os.environ["FLYTE_KFPYTORCH_DATASET"], "numbers.txt").read_text().split()
    factor = Path(os.environ["FLYTE_KFPYTORCH_MODEL"], "factor.txt").read_text()
    return int(factor) * sum(map(int, numbers))


@task(
    task_config=PyTorch(
        worker=Worker(replicas=0),
        train_job=TrainJob(
            dataset=Dataset(uri="s3://absent/numbers", secret="store"), storage="1Gi", max_restarts=3
        ),
    ),
    requests=SMALL,
    retries=2,
)
def loads_absent_data() -> None:
    """A task whose data set is in a bucket that does not exist."""

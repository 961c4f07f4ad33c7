"""Small tasks for the end-to-end tests, because even an idle pod is expensive.

Pods import this module as `e2e.propeller_flow.tasks`.
"""

import os
import signal
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from flytekit import Resources, task
from flytekit.exceptions.user import FlyteRecoverableException
from flytekit.types.file import FlyteFile

from flytekitplugins.kfpytorch import (
    CleanPodPolicy,
    Elastic,
    Master,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    TrainJob,
    Worker,
)

FOREVER = 600.0  # Longer than every test that does not stop the task.
SMALL = Resources(cpu="100m", mem="400Mi")  # The requests of a pod. Twenty pods fit on two processors.
ALONE = PyTorch(worker=Worker(replicas=0))
PAIR = PyTorch(worker=Worker(replicas=1))


@dataclass
class Curve:
    name: str
    points: list[float]


def attempt() -> int:
    return int(os.environ["FLYTE_ATTEMPT_NUMBER"])


def note(folder: str, what: str) -> None:
    """Create a file that records an event. Each call creates another file."""
    execution, rank = os.environ["FLYTE_INTERNAL_EXECUTION_ID"], os.environ.get("RANK", "0")
    name = f"{what}.{execution}.{attempt()}.{rank}.{uuid.uuid4().hex}"
    Path(folder, name).touch()


@task(task_config=PAIR, requests=SMALL)
def types_of_replicas(scale: float, names: list[str]) -> tuple[float, str, Curve, FlyteFile]:
    path = Path("weights.txt").resolve()
    path.write_text(f"weights of {len(names)}")
    curve = Curve("+".join(names), [scale, 2 * scale])
    return scale / 2, f"rank {os.environ['RANK']}", curve, FlyteFile(str(path))


@task(task_config=Elastic(nnodes=2, nproc_per_node=1, increase_shared_mem=False), limits=Resources(mem="2Gi"))
def elastic_sum(value: int) -> tuple[int, dict[str, int]]:
    return add_ranks(value)


@task(task_config=PAIR, requests=SMALL)
def replica_sum(value: int) -> tuple[int, dict[str, int]]:
    return add_ranks(value)


@task(
    task_config=Elastic(nnodes=2, nproc_per_node=2, train_job=TrainJob(framework="jax")),
    limits=Resources(mem="2Gi"),
)
def jax_numbers() -> list[str]:
    """Return the numbers of all processes, which meet at the address of the coordinator."""
    import torch.distributed as dist

    number, count = os.environ["JAX_PROCESS_ID"], int(os.environ["JAX_NUM_PROCESSES"])
    host, _, port = os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")
    store = dist.TCPStore(host, int(port), count, is_master=number == "0")
    store.set(number, number)
    if number != "0":
        return []
    assert os.environ["JAX_COORDINATOR_BIND_ADDRESS"] == f"{host}:{port}"
    return [store.get(str(each)).decode() for each in range(count)]


def add_ranks(value: int) -> tuple[int, dict[str, int]]:
    import torch
    import torch.distributed as dist
    from listening_sockets import sockets_of_run

    dist.init_process_group("gloo")
    total = torch.tensor(value + dist.get_rank())
    dist.all_reduce(total)
    inside, outside = sockets_of_run("FLYTE_INTERNAL_EXECUTION_ID")
    dist.barrier()
    counts = {"world": dist.get_world_size(), "listens": int(bool(inside)), "open": len(outside)}
    return int(total.item()), counts


@task(task_config=Elastic(nnodes=2, nproc_per_node=1, max_restarts=2), limits=Resources(mem="2Gi"))
def elastic_second_wind(folder: str) -> tuple[int, dict[str, int]]:
    """Fail one of two nodes once, so that both restart together."""
    note(folder, "started")
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
        raise RuntimeError("not yet")
    _, counts = add_ranks(0)
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"]), counts


@task(task_config=PAIR, requests=SMALL)
def raises_with_outputs() -> int:
    if os.environ["RANK"] == "1":
        raise ValueError("batch 7 has 31 labels for 32 images")
    time.sleep(FOREVER)
    return 0


@task(task_config=ALONE, requests=SMALL)
def raises_without_outputs() -> None:
    raise ValueError("batch 7 has 31 labels for 32 images")


@task(task_config=ALONE, requests=SMALL, retries=2)
def recovers(folder: str) -> int:
    note(folder, "started")
    if attempt() < 1:
        raise FlyteRecoverableException("the shard is not there yet")
    return attempt()


@task(task_config=ALONE, requests=SMALL, retries=2)
def exits(code: int) -> None:
    sys.exit(code)


@task(task_config=ALONE, requests=SMALL, limits=Resources(mem="400Mi"))
def takes_too_much() -> int:
    taken = []
    for _ in range(40):
        taken.append(b"x" * (64 << 20))
        time.sleep(0.1)
    time.sleep(FOREVER)
    return len(taken)


@task(task_config=PAIR, requests=Resources(cpu="1000", mem="400Mi"))
def asks_for_too_much() -> None: ...


@task(task_config=PAIR, requests=SMALL)
def waits(folder: str) -> int:
    note(folder, "started")
    time.sleep(FOREVER)
    return 0


@task(
    task_config=PyTorch(worker=Worker(replicas=1), run_policy=RunPolicy(active_deadline_seconds=3)),
    requests=SMALL,
)
def runs_too_long(folder: str) -> int:
    note(folder, "started")
    time.sleep(FOREVER)
    return 0


@task(task_config=PAIR, requests=SMALL, retries=2)
def is_killed_once(folder: str) -> int:
    """Kill one replica of the first attempt. The other one runs until the connector stops it."""
    note(folder, "started")
    if attempt() == 0:
        if os.environ["RANK"] == "1":
            while not list(Path(folder).glob("started.*.0.0.*")):  # The other replica must exist.
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FOREVER)
    return attempt()


@task(
    task_config=PyTorch(
        master=Master(restart_policy=RestartPolicy.FAILURE),
        worker=Worker(replicas=0),
        run_policy=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
    ),
    requests=SMALL,
)
def restarts_in_place(folder: str) -> int:
    """Exit once, so that the kubelet restarts the container in the same attempt."""
    before = len(list(Path(folder).glob("started.*")))
    note(folder, "started")
    if before == 0:
        os._exit(3)
    return before


@task(task_config=ALONE, requests=SMALL, retries=50)
def counts(folder: str, seconds: float) -> int:
    note(folder, "started")
    time.sleep(seconds)
    note(folder, "ended")
    return attempt()


@task(task_config=ALONE, requests=SMALL)
def adds(value: int) -> int:
    return value + 1


@task(task_config=PAIR, requests=SMALL, retries=2)
def talks(folder: str) -> int:
    """Print one line per rank, in the order of the ranks, and then run until stopped."""
    rank = int(os.environ["RANK"])
    while len(list(Path(folder).glob("turn.*"))) < rank:
        time.sleep(0.02)
    print(f"rank {rank} speaks", flush=True)
    Path(folder, f"turn.{rank}").touch()
    time.sleep(FOREVER)
    return rank

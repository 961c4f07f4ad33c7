"""Tasks that return where the processes of their run listen, while all ranks are connected."""

import base64
import os
import pickle
import socket
import sys
from datetime import timedelta
from pathlib import Path

from flytekit import task

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker

# The path of `listening_sockets`, which pytest does not set in this process.
sys.path.append(str(Path(__file__).parents[2]))

TWO_NODES = Elastic(nnodes=2, nproc_per_node=2, max_restarts=1)


class Planted:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(self.path),)  # type: ignore[return-value]


def meet() -> list[list[str]]:
    """Return the sockets of the run inside and outside of the loopback interface, as rank 0 sees them."""
    import torch.distributed as dist
    from listening_sockets import sockets_of_run
    from torch.distributed import rpc

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=dist.get_world_size())
    dist.barrier()
    found = [list(each) for each in sockets_of_run("KFPYTORCH_TEST_MARK")]
    dist.barrier()
    rpc.shutdown()
    dist.destroy_process_group()
    return found


@task(task_config=PyTorch(worker=Worker(replicas=2)))
def replicas() -> list[list[str]]:
    return meet()


@task(task_config=Elastic(nproc_per_node=2))
def elastic() -> list[list[str]]:
    return meet()


@task(task_config=TWO_NODES)
def attacked(planted: str) -> list[list[str]]:
    """Store `planted` in every store of the first generation, then have the agents meet again."""
    import torch.distributed as dist

    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            attack(planted)
        dist.barrier()
        raise ValueError("the first generation fails")
    return meet()


def attack(planted: str) -> None:
    """Do what another process of this machine can do to the stores of a run."""
    import torch.distributed as dist

    value = pickle.dumps(Planted(planted))
    names = ["torch.rendezvous.local", f"torch.rendezvous.{os.environ['TORCHELASTIC_RUN_ID']}"]
    endpoint = os.environ["PET_RDZV_ENDPOINT"].rpartition(":")[2]
    for port in (int(endpoint), int(os.environ["MASTER_PORT"])):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                continue
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=10))
        for name in names:
            store.set(name, base64.b64encode(value).decode())

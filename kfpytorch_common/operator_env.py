"""The environment variables that an operator sets for a replica: training-operator 1.7 to 1.9, or Trainer."""

import sys
from dataclasses import dataclass
from typing import Final

LOOPBACK_ONLY: Final = "FLYTE_KFPYTORCH_LOOPBACK_ONLY"
"""A variable of this plugin: ``1`` if all replicas are on one machine and use only its loopback interface."""

LOOPBACK_INTERFACE: Final = "lo" if sys.platform == "linux" else "lo0"


@dataclass(frozen=True, kw_only=True)
class RendezvousEndpoint:
    """The address at which the replicas of a job meet."""

    address: str
    port: int


def build_replica_env(index: int, replicas: int, master: RendezvousEndpoint) -> dict[str, str]:
    """Return the variables of replica `index` (0 is the master) in a Master and Worker job of `replicas`."""
    port = str(master.port)
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": master.address,
        "PET_MASTER_ADDR": master.address,
        "WORLD_SIZE": str(replicas),
        "RANK": str(index),
        "PET_NODE_RANK": str(index),
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": str(replicas),
    }


def build_loopback_env(interface: str = LOOPBACK_INTERFACE) -> dict[str, str]:
    """Return the variables that keep the processes of a job on one machine on the loopback interface."""
    return {
        LOOPBACK_ONLY: "1",
        # The variables of gloo, nccl and tensorpipe (torch.distributed.rpc).
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
    }


def build_jax_env(process: int, processes: int, coordinator: RendezvousEndpoint) -> dict[str, str]:
    """Return the variables for a process of jax, with the names that Trainer's policy for jax sets."""
    return {
        "JAX_COORDINATOR_ADDRESS": f"{coordinator.address}:{coordinator.port}",
        "JAX_NUM_PROCESSES": str(processes),
        "JAX_PROCESS_ID": str(process),
    }


def build_single_process_env(master: RendezvousEndpoint) -> dict[str, str]:
    """Return the variables for a world size of 1, including those that torchrun sets."""
    return {
        **build_replica_env(0, 1, master),
        "PET_NPROC_PER_NODE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }


def build_elastic_env(
    nodes: int, nproc_per_node: int, max_restarts: int, endpoint: RendezvousEndpoint
) -> dict[str, str]:
    """Return the variables of each node in an elastic job of `nodes` nodes."""
    return {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": f"{endpoint.address}:{endpoint.port}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": f"{nodes}:{nodes}",
        "PET_MAX_RESTARTS": str(max_restarts),
        "PET_NPROC_PER_NODE": str(nproc_per_node),
    }


def format_replica_name(index: int) -> str:
    """Return the operator's name of replica `index` in a Master and Worker job."""
    return "master-0" if index == 0 else f"worker-{index - 1}"

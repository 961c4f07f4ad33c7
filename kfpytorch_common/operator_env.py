"""The environment variables that an operator sets for a replica: training-operator 1.7 to 1.9, or Trainer."""

import sys
from typing import Final

LOOPBACK_ONLY: Final = "FLYTE_KFPYTORCH_LOOPBACK_ONLY"
"""Environment variable: ``1`` if all replicas are on one machine and use only its loopback interface."""

LOOPBACK_ADDRESS: Final = "127.0.0.1"
LOOPBACK_INTERFACE: Final = "lo" if sys.platform == "linux" else "lo0"


def build_replica_env(index: int, replicas: int, port: int) -> dict[str, str]:
    """Return the environment variables of replica `index` in a job of `replicas`; index 0 is the master.

    All replicas are on this machine, and the master listens on `port`.
    """
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": str(port),
        "PET_MASTER_PORT": str(port),
        "MASTER_ADDR": LOOPBACK_ADDRESS,
        "PET_MASTER_ADDR": LOOPBACK_ADDRESS,
        "WORLD_SIZE": str(replicas),
        "RANK": str(index),
        "PET_NODE_RANK": str(index),
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": str(replicas),
    }


def build_loopback_env() -> dict[str, str]:
    """Return environment variables with which the processes of a job use only the loopback interface."""
    return {
        LOOPBACK_ONLY: "1",
        # The variables of gloo, nccl and tensorpipe (torch.distributed.rpc).
        "GLOO_SOCKET_IFNAME": LOOPBACK_INTERFACE,
        "NCCL_SOCKET_IFNAME": LOOPBACK_INTERFACE,
        "TP_SOCKET_IFNAME": LOOPBACK_INTERFACE,
    }


def build_single_process_env(port: int) -> dict[str, str]:
    """Return the environment variables, including torchrun's, of a single process that listens on `port`."""
    return {
        **build_replica_env(0, 1, port),
        "PET_NPROC_PER_NODE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }


def build_elastic_env(nodes: int, nproc_per_node: int, max_restarts: int, port: int) -> dict[str, str]:
    """Return the environment variables of each node in an elastic job of `nodes` nodes on this machine."""
    return {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": f"{LOOPBACK_ADDRESS}:{port}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": f"{nodes}:{nodes}",
        "PET_MAX_RESTARTS": str(max_restarts),
        "PET_NPROC_PER_NODE": str(nproc_per_node),
    }


def format_replica_name(index: int) -> str:
    """Return the name that the operator gives to replica `index`: 0 is ``master-0``, 1 is ``worker-0``."""
    return "master-0" if index == 0 else f"worker-{index - 1}"

"""Set the environment variables of jax processes, and end a failed process without waiting for the others."""

import atexit
import os
import sys
from collections.abc import Mapping
from typing import Final

from kfpytorch_common import operator_env
from kfpytorch_common.loaded_modules import find_loaded

IMPORT_ERROR_MESSAGE: Final = "jax is not installed here. Install it with: pip install jax"

_BIND_ADDRESS: Final = "JAX_COORDINATOR_BIND_ADDRESS"


def build_env(process: int, processes: int, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of process number `process` of a jax job.

    `processes` is the number of all processes of the job. `env` contains ``MASTER_ADDR`` and ``MASTER_PORT``
    of the job.
    """
    return {
        "RANK": str(process),
        "WORLD_SIZE": str(processes),
        # Kubeflow Trainer sets these variables in the nodes of a jax job.
        "JAX_COORDINATOR_ADDRESS": f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}",
        "JAX_NUM_PROCESSES": str(processes),
        "JAX_PROCESS_ID": str(process),
        **build_bind_address(env),
    }


def build_bind_address(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that binds jax's coordinator to loopback, if all processes are on this machine."""
    if env.get(operator_env.LOOPBACK_ONLY) != "1":
        return {}
    return {_BIND_ADDRESS: f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"}


def exit_without_peers(code: int) -> None:
    """Make this failed process end with exit code `code`, before the exit handler of jax runs.

    The exit handler of jax would wait up to five minutes for the end of the other processes.
    """
    if find_loaded("jax") is not None:
        atexit.register(_exit, code)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)

"""Run a task under mpirun of Open MPI: all ranks in a local run, or the ranks of this pod in a cluster."""

import os
import shutil
import subprocess
from typing import Any, Final

from flytekitplugins.kfpytorch.frameworks import FrameworkNotInstalled
from flytekitplugins.kfpytorch.worker import local_run
from flytekitplugins.kfpytorch.worker.process_group import ProcessSpec
from flytekitplugins.kfpytorch.worker.topology import Topology
from kfpytorch_common.frameworks import MPI_HOSTFILE_VARIABLE

_WORKER: Final = "_F_WN"
"""The environment variable with the worker name that flytekit writes to error files, such as ``node-0``."""
_AGENT: Final = "flytekitplugins.kfpytorch.worker.mpi_agent:main"
_INSTALL: Final = (
    "install Open MPI with: apt install openmpi-bin (or: conda install -c conda-forge openmpi), "
    "and mpi4py with: pip install mpi4py"
)


def require_open_mpi() -> None:
    """Raise a `FrameworkNotInstalled` error if there is no `mpirun` on the PATH, or not that of Open MPI."""
    program = shutil.which("mpirun")
    if program is None:
        raise FrameworkNotInstalled(f"there is no mpirun on the PATH; {_INSTALL}")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version:
        first_line = version.partition("\n")[0] or "no version"
        raise FrameworkNotInstalled(f"{program} is not that of Open MPI ({first_line}); {_INSTALL}")


def run_here(task: Any, inputs: dict[str, Any], fitted: Topology) -> Any:
    """Run all ranks of `fitted` under mpirun on this machine, and return the value of rank 0."""
    with local_run.open_run(task, inputs, "spawn") as run:
        run.print_layout(f"{fitted.ranks} ranks under mpirun", fitted)
        env = local_run.build_env(fitted, 0)
        # If the environment contained a hostfile, mpirun would start ranks on other machines.
        env.pop(MPI_HOSTFILE_VARIABLE, None)
        agent = _build_agent(run, fitted.ranks, fitted.ranks, env)
        return run.finish([agent], fitted.ranks)


def run_in_pod(task: Any, inputs: dict[str, Any]) -> Any:
    """Run the ranks of this pod, and return the value of rank 0.

    The pod of the launcher starts mpirun. Every other pod starts sshd, through which mpirun starts ranks.

    Raises:
        IgnoreOutputs: Rank 0 runs in another pod.
    """
    count, total = int(getattr(task.task_config, "nproc_per_node", 1)), int(os.environ["WORLD_SIZE"])
    if MPI_HOSTFILE_VARIABLE in os.environ:
        require_open_mpi()
        os.environ[_WORKER] = "node-0"
    else:
        os.environ[_WORKER] = f"node-{int(os.environ['JOB_COMPLETION_INDEX']) + 1}"
    with local_run.open_run(task, inputs, "spawn", in_pod=True) as run:
        env = {"OMP_NUM_THREADS": "1", **os.environ}
        agent = _build_agent(run, count, total, env)
        return run.finish([agent], count, complete=False)


def _build_agent(run: local_run.LocalRun, count: int, total: int, env: dict[str, str]) -> ProcessSpec:
    labels = ["mpirun", *(f"local {rank}" for rank in range(count))]
    slots = [*map(run.console.open_slot, labels)]
    hostfile = env.get(MPI_HOSTFILE_VARIABLE, "")
    is_launcher = run.on_this_machine or bool(hostfile)
    node = {"total": total, "hostfile": hostfile, "is_launcher": is_launcher}
    return run.build_agent("this machine", _AGENT, slots, env, **node)

"""Run a task under mpirun of Open MPI: all ranks on this machine, or those of this pod."""

import os
import shutil
import subprocess
from typing import Any, Final

from flytekitplugins.kfpytorch.frameworks import FrameworkNotInstalled
from flytekitplugins.kfpytorch.worker import local_run, outcome, runtime_info
from flytekitplugins.kfpytorch.worker.launch_settings import ProcessSpec
from flytekitplugins.kfpytorch.worker.topology import Topology
from kfpytorch_common.frameworks import MPI_HOSTFILE_VARIABLE

_WORKER: Final = "_F_WN"
"""The variable with the worker name that flytekit writes to an error file. The launcher is `node-0`."""
_AGENT: Final = "flytekitplugins.kfpytorch.worker.mpi_agent:main"
_INSTALL: Final = (
    "install Open MPI with: apt install openmpi-bin (or: conda install -c conda-forge openmpi), "
    "and mpi4py with: pip install mpi4py"
)


class MpiNotInstalled(FrameworkNotInstalled):
    """This machine has no mpirun of Open MPI."""


def require_open_mpi() -> None:
    """Raise a `MpiNotInstalled` error unless the `mpirun` on the PATH is that of Open MPI."""
    program = shutil.which("mpirun")
    if program is None:
        raise MpiNotInstalled(f"there is no mpirun on the PATH; {_INSTALL}")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version:
        first_line = version.partition("\n")[0] or "no version"
        raise MpiNotInstalled(f"{program} is not that of Open MPI ({first_line}); {_INSTALL}")


def run_here(task: Any, inputs: dict[str, Any], fitted: Topology) -> Any:
    """Run all ranks of a task on this machine."""
    with local_run.open_run(task, inputs, "spawn") as (run, client):
        run.console.print_line(
            f"{task.name}: {fitted.ranks} ranks under mpirun{local_run.format_devices(task, fitted)}"
        )
        local_run.print_note(run, fitted)
        env = local_run.build_env(fitted, 0)
        # With a file of nodes from the environment, mpirun would start ranks on other machines.
        env.pop(MPI_HOSTFILE_VARIABLE, None)
        agent = _build_agent(run, fitted.ranks, fitted.ranks, env)
        ended = local_run.supervise(run, client, [agent], outcome.collect_nodes)
        return local_run.return_or_raise(run, ended, fitted.ranks)


def run_in_pod(task: Any, inputs: dict[str, Any]) -> Any:
    """Run the ranks of this pod: start mpirun in the launcher, and sshd in the other nodes."""
    count, total = int(getattr(task.task_config, "nproc_per_node", 1)), int(os.environ["WORLD_SIZE"])
    if MPI_HOSTFILE_VARIABLE in os.environ:
        require_open_mpi()
        os.environ[_WORKER] = "node-0"
    else:
        os.environ[_WORKER] = f"node-{int(os.environ['JOB_COMPLETION_INDEX']) + 1}"
    with local_run.open_run(task, inputs, "spawn", in_pod=True) as (run, client):
        env = {"OMP_NUM_THREADS": "1", **os.environ}
        agent = _build_agent(run, count, total, env)
        ended = outcome.collect_nodes(local_run.run_until_stopped(run, client, [agent]))
        ended.at_terminal, ended.complete = False, False
        return local_run.return_or_raise(run, ended, count)


def _build_agent(run: local_run.LocalRun, count: int, total: int, env: dict[str, str]) -> ProcessSpec:
    slots = [run.open_slot("mpirun"), *(run.open_slot(f"local {rank}") for rank in range(count))]
    directory = run.scratch / "node"
    directory.mkdir(mode=0o700)
    replica = "this machine" if run.on_this_machine else runtime_info.format_pod_name()
    places = [
        {**run.build_context(slot, replica), "directory": str(directory / str(rank))}
        for rank, slot in enumerate(slots[1:])
    ]
    hostfile = env.get(MPI_HOSTFILE_VARIABLE, "")
    args = {
        "directory": str(directory),
        "places": places,
        "total": total,
        "hostfile": hostfile,
        "is_launcher": run.on_this_machine or bool(hostfile),
    }
    return ProcessSpec(
        name="mpirun",
        target=_AGENT,
        args=args,
        env=env,
        slots=tuple(slots),
        patience=run.patience,
        is_agent=True,
    )

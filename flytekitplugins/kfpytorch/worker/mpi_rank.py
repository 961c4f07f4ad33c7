"""Run one rank of an MPI job, which mpirun has started on this node.

The agent of the node writes a file with the environment of the ranks, and with the file descriptors of the
agent for their output. A rank opens these descriptors through ``/proc``, so that its output appears in the
log of its own node and not in that of mpirun.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from flytekitplugins.kfpytorch.worker import failure_file, replica

DIRECTORY: Final = "_KFPYTORCH_MPI_DIRECTORY"
"""The environment variable with the path of the directory in which the agent of the node writes its files."""
NODE_FILE: Final = "node.json"
PROCESS_FILE: Final = "process.json"
_OF_MPI: Final = ("OMPI_", "PMIX_", "OPAL_", "ORTE_")


def main() -> NoReturn:
    """Run the user's function in the environment that the agent of the node wrote to `NODE_FILE`.

    End this process with the exit code that `replica.run_worker` returns.
    """
    directory = Path(os.environ[DIRECTORY])
    node = json.loads((directory / NODE_FILE).read_bytes())
    of_mpi = {name: value for name, value in os.environ.items() if name.startswith(_OF_MPI)}
    local = int(of_mpi["OMPI_COMM_WORLD_LOCAL_RANK"])
    os.environ.clear()
    os.environ.update({**node["env"], **of_mpi, **_build_ranks(of_mpi)})
    os.chdir(node["cwd"])
    sys.argv[:] = node["argv"]
    events = _open_streams(node, local)
    place = replica.WorkerContext(**node["places"][local])
    folder = Path(place.directory)
    folder.mkdir(exist_ok=True)
    process = {"rank": int(of_mpi["OMPI_COMM_WORLD_RANK"]), "pid": os.getpid(), "parent": os.getppid()}
    failure_file.write_json(folder / PROCESS_FILE, process)
    code = replica.run_worker(place, None, events)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code:
        # Skip MPI_Finalize, which would wait for the other ranks. mpirun then stops the other ranks.
        os._exit(code)
    sys.exit(0)


def _build_ranks(of_mpi: Mapping[str, str]) -> dict[str, str]:
    names = {
        "RANK": "RANK",
        "WORLD_SIZE": "SIZE",
        "LOCAL_RANK": "LOCAL_RANK",
        "LOCAL_WORLD_SIZE": "LOCAL_SIZE",
    }
    return {name: of_mpi[f"OMPI_COMM_WORLD_{key}"] for name, key in names.items()}


def _open_streams(node: Mapping[str, Any], local: int) -> int:
    events, *streams = node["streams"]
    with contextlib.suppress(OSError):  # If there is no /proc, mpirun forwards the output.
        for number in (1, 2):
            fd = os.open(f"/proc/{node['agent']}/fd/{streams[3 * local + number]}", os.O_WRONLY)
            os.dup2(fd, number)
            os.close(fd)
        return os.open(f"/proc/{node['agent']}/fd/{events}", os.O_WRONLY)
    return os.open(os.devnull, os.O_WRONLY)

"""Checks of the options of an MPI job."""

from collections.abc import Iterator

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainJobOptions
from backend_plugin.core.protojson import select_problems
from kfpytorch_common.frameworks import MPI

_PATH = "custom.kfpytorch.trainJob"


def check_mpi(options: TrainJobOptions | None, nodes: int) -> Iterator[Problem]:
    """Yield the options that an MPI job with this number of nodes cannot have."""
    if options is None or options.framework != MPI:
        return
    too_few = "leaves the launcher of mpirun without another node"
    runtime = "has an image of its own for the nodes of an MPI job"
    topology = "cannot place an MPI job, whose launcher is a Job of its own"
    policy = "cannot select nodes of an MPI job, which all end with mpirun"
    remedy, indexes = "leave it out", options.succeeded_indexes
    yield from select_problems(
        (nodes < 2, "custom.workerReplicas.replicas", nodes, too_few, "use at least 2 nodes"),
        (options.runtime is not None, f"{_PATH}.runtime", options.runtime, runtime, remedy),
        (options.topology is not None, f"{_PATH}.topology", "{...}", topology, remedy),
        (indexes is not None, f"{_PATH}.successPolicy", indexes, policy, remedy),
    )

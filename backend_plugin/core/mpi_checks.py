"""Checks of the options of an MPI job."""

from collections.abc import Iterator, Sequence

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup, TrainJobOptions
from backend_plugin.core.protojson import build_problem
from kfpytorch_common.frameworks import MPI

_PATH = "custom.kfpytorch.trainJob"


def check_mpi(options: TrainJobOptions | None, groups: Sequence[ReplicaGroup]) -> Iterator[Problem]:
    """Yield the options that an MPI job cannot have."""
    if options is None or options.framework != MPI:
        return
    if (nodes := sum(group.replicas for group in groups)) < 2:
        message = "leaves the launcher of mpirun without another node"
        yield build_problem("custom.workerReplicas.replicas", nodes, message, "use at least 2 nodes")
    if options.runtime is not None:
        message = "has an image of its own for the nodes of an MPI job"
        yield build_problem(f"{_PATH}.runtime", options.runtime, message, "leave it out")
    if options.topology is not None:
        message = "cannot place an MPI job, whose launcher is a Job of its own"
        yield build_problem(f"{_PATH}.topology", "{...}", message, "leave it out")
    if options.succeeded_indexes is not None:
        message = "cannot select nodes of an MPI job, which all end with mpirun"
        yield build_problem(f"{_PATH}.successPolicy", options.succeeded_indexes, message, "leave it out")

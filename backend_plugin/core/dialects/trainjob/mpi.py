"""The parts of an MPI job: Trainer's policy for MPI, and the launcher, which is separate from other nodes.

All nodes run the worker program. It starts mpirun in the launcher, the first node, and sshd in the others.
"""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.dialects.trainjob.resource import (
    CONTAINER,
    FIRST_INDEX,
    LAUNCHER,
    find_trainer,
    iter_volume_conflicts,
)
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup, TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from kfpytorch_common.frameworks import MPI, MPI_HOSTFILE_VARIABLE, MPI_SSH_DIRECTORY

_VOLUMES: Final = frozenset({"mpi-ssh-auth", "mpi-hostfile"})
"""The volumes that Trainer adds to the nodes of an MPI job."""
_DIRECTORIES: Final = frozenset({MPI_SSH_DIRECTORY, "/etc/mpi"})
"""The directories in which Trainer mounts the volumes that it adds to the nodes of an MPI job."""
_VARIABLES: Final = frozenset({
    MPI_HOSTFILE_VARIABLE,
    *("OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots"),
})  # fmt: skip
"""The environment variables that Trainer sets only in the launcher of an MPI job.

The worker program starts mpirun if the first variable is set.
"""


def build_policy(job: TrainingJob, group: ReplicaGroup) -> Manifest:
    """Return the fields of the runtime's `mlPolicy` for MPI; empty for another framework."""
    if job.framework != MPI:
        return {}
    return {
        # The number of launchers. The TrainJob has the number of nodes.
        "numNodes": 1,
        "mpi": {
            "numProcPerNode": group.processes,
            "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": MPI_SSH_DIRECTORY,
            "runLauncherAsNode": True,
        },
    }


def split_launcher(job: TrainingJob, nodes: Manifest) -> list[Manifest]:
    """Return the nodes as replicated jobs of JobSet.

    MPI has two replicated jobs: the launcher, which is node 0, and all other nodes. Any other framework has
    one replicated job.
    """
    if job.framework != MPI:
        return [nodes]
    spec = get_mapping(nodes, "template", "spec")
    pod = get_mapping(spec, "template")
    labels = {**get_mapping(pod, "metadata", "labels"), FIRST_INDEX: "1"}
    others = {**pod, "metadata": {**get_mapping(pod, "metadata"), "labels": labels}}
    # Only the launcher has the label of the trainer step, so only its pod gets the fields of `trainer`.
    return [{**nodes, "name": LAUNCHER}, {**nodes, "template": {"spec": {**spec, "template": others}}}]


def check_pod(job: TrainingJob, spec: Manifest) -> Iterator[Problem]:
    """Yield a problem for each part of the pod `spec` that conflicts with what Trainer adds to it for MPI."""
    if job.framework != MPI:
        return
    remedy = "use another one in the pod template"
    for path, value in iter_volume_conflicts(spec, _VOLUMES, _DIRECTORIES):
        message = "is a volume of MPI jobs" if value in _VOLUMES else "is a directory of MPI jobs"
        yield build_problem(path, value, message, remedy)
    for each in get_mappings(find_trainer(spec), "env"):
        if (name := get_text(each, "name")) in _VARIABLES:
            message = "is a variable that the launcher of an MPI job gets"
            yield build_problem(f"pod.spec.containers[{CONTAINER}].env", name, message, "leave it out")

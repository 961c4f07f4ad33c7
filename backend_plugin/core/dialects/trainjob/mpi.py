"""The parts of an MPI job: Trainer's policy for MPI, and the launcher beside the other nodes.

Trainer creates the keys of sshd and the file with the nodes. All nodes have the same command: the worker
starts mpirun in the launcher, which is the first node, and sshd in the others.
"""

from backend_plugin.core.dialects.trainjob.resource import FIRST_INDEX, LAUNCHER
from backend_plugin.core.job import ReplicaGroup, TrainingJob
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from kfpytorch_common.frameworks import MPI, MPI_SSH_DIRECTORY


def build_policy(job: TrainingJob, group: ReplicaGroup) -> Manifest:
    """Return the fields of a policy for MPI; empty for another framework."""
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
    """Return the replicated jobs of the nodes: the launcher first, so that it has rank 0."""
    if job.framework != MPI:
        return [nodes]
    spec = get_mapping(nodes, "template", "spec")
    pod = get_mapping(spec, "template")
    labels = {**get_mapping(pod, "metadata", "labels"), FIRST_INDEX: "1"}
    others = {**pod, "metadata": {**get_mapping(pod, "metadata"), "labels": labels}}
    # Only the launcher is Trainer's trainer, whose fields replace those of the pod.
    return [{**nodes, "name": LAUNCHER}, {**nodes, "template": {"spec": {**spec, "template": others}}}]

"""The API resource of a PyTorchJob, and the names that its operator requires or sets."""

from typing import Final

from backend_plugin.core.dialects.base import JobResource, ReplicaLabels, ReplicaPort
from backend_plugin.core.observed import Job

RESOURCE: Final = JobResource(group="kubeflow.org", version="v1", kind="PyTorchJob", plural="pytorchjobs")
REPLICA_SPECS: Final = "pytorchReplicaSpecs"
"""The field of the spec with the replicas by role."""
CONTAINER: Final = "pytorch"
"""The name of the training container; the operator requires exactly this name."""
PORT: Final = ReplicaPort(name="pytorchjob-port", number=23456)
"""The port that the operator adds to the training container, and the value of MASTER_PORT."""
_PREFIX: Final = "training.kubeflow.org/"
LABELS: Final = ReplicaLabels(
    job_name=_PREFIX + "job-name", role=_PREFIX + "replica-type", index=_PREFIX + "replica-index"
)


def build_pod_name(job: Job, role: str, index: int) -> str:
    """Return the name of the pod of a replica."""
    return f"{job.name}-{role}-{index}"

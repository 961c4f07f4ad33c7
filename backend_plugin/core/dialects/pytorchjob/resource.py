"""The API resource of a PyTorchJob, and the names that its operator requires or sets."""

from collections.abc import Iterable, Sequence
from typing import Final

from backend_plugin.core.dialects.base import JobResource, ReplicaLabels, ReplicaPort
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.observed import Job
from backend_plugin.core.values import Manifest

RESOURCE: Final = JobResource(group="kubeflow.org", version="v1", kind="PyTorchJob", plural="pytorchjobs")
REPLICA_SPECS: Final = "pytorchReplicaSpecs"
CONTAINER: Final = "pytorch"
"""The name of the training container; the operator requires exactly this name."""
PORT: Final = ReplicaPort(name="pytorchjob-port", number=23456)
"""The port that the operator adds to the training container, and the value of MASTER_PORT."""
_PREFIX: Final = "training.kubeflow.org/"
LABELS: Final = ReplicaLabels(
    job_name=_PREFIX + "job-name", role=_PREFIX + "replica-type", index=_PREFIX + "replica-index"
)

INIT_CONTAINER: Final = "init-pytorch"
"""The init container in which a worker waits for the master."""
# The default of the operator. A platform can configure another init container, which we cannot see.
_INIT_CONTAINER: Final[Manifest] = {
    "name": INIT_CONTAINER,
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
}


def build_pod_name(job: Job, role: str, index: int) -> str:
    """Return the name of the pod of a replica."""
    return f"{job.name}-{role}-{index}"


def list_added_containers(role: ReplicaRole, roles: Iterable[ReplicaRole]) -> Sequence[Manifest]:
    """Return the init container that the operator adds to a worker of a job with a master; otherwise none."""
    return (_INIT_CONTAINER,) if role is ReplicaRole.WORKER and ReplicaRole.MASTER in roles else ()

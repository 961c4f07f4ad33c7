"""The changes of the spec that end a PyTorchJob before its replicas end."""

from typing import Final

from backend_plugin.core.dialects.pytorchjob.reader import ENDING_DEADLINE
from backend_plugin.core.dialects.pytorchjob.resource import REPLICA_SPECS
from backend_plugin.core.observed import Job
from backend_plugin.core.values import Manifest

END: Final[Manifest] = {
    "runPolicy": {"activeDeadlineSeconds": ENDING_DEADLINE, "cleanPodPolicy": "Running", "suspend": False}
}
"""The change that ends a job with pods. The operator deletes all pods of a job that reaches its deadline."""
SUSPEND: Final[Manifest] = {"runPolicy": {"suspend": True}}


def build_stop_spec(job: Job) -> Manifest:
    """Return the change after which no pod is restarted or deleted, so that the job ends with its pods."""
    roles = {group.role.capitalize(): {"restartPolicy": "Never"} for group in job.groups}
    # With a backoff limit of 0, the operator would delete all pods after the first failure.
    return {"runPolicy": {"cleanPodPolicy": "None", "backoffLimit": None}, REPLICA_SPECS: roles}

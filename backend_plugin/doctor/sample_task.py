"""The default task, used if the user names none: a master and a worker with the platform's defaults."""

from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core.values import Manifest

IMAGE: Final = "kfpytorch-doctor:1"
"""A name only: the task never runs, so the image is never pulled."""
_TASK: Final = {
    "id": {
        "resourceType": "TASK",
        "project": "project",
        "domain": "development",
        "name": "any",
        "version": "1",
    },
    "type": "pytorch",
    "taskTypeVersion": 1,
    "container": {"image": IMAGE, "args": ["true"]},
    "custom": {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}},
}


def build_template() -> TaskTemplate:
    """Return a task with two replicas."""
    found: Any = ParseDict(_TASK, TaskTemplate())
    return found


def build_invalid_job(namespace: str) -> Manifest:
    """Return a job that every training operator with a webhook rejects, because it has two masters."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "kfpytorch-doctor", "namespace": namespace},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {
                    "replicas": 2,
                    "restartPolicy": "Never",
                    "template": {"spec": {"containers": [{"name": "pytorch", "image": IMAGE}]}},
                }
            }
        },
    }

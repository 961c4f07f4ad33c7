"""The task that stands for all where none is named: a master and a worker, of what the platform gives."""

from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core.values import Manifest

IMAGE: Final = "kfpytorch-doctor:1"
"""Nobody pulls it: such a task is never run."""
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


def template() -> TaskTemplate:
    """A task of two replicas."""
    found: Any = ParseDict(_TASK, TaskTemplate())
    return found


def invalid(namespace: str) -> Manifest:
    """A job that every operator with a webhook refuses: it has two masters."""
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

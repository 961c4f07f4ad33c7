"""The default task, used if the user names none: a master and a worker with the platform's defaults."""

from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core.names import TASK_TYPE

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
    "type": TASK_TYPE,
    "taskTypeVersion": 1,
    "container": {"image": IMAGE, "args": ["true"]},
    "custom": {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}},
}


def build_template() -> TaskTemplate:
    """Return a task with two replicas."""
    found: Any = ParseDict(_TASK, TaskTemplate())
    return found

"""Distributed PyTorch training as Flyte tasks.

What an author writes into ``@task(task_config=...)``. Importing this package registers the task
types with flytekit; it loads neither torch nor kubernetes.
"""

from flytekitplugins.kfpytorch.task import (
    CleanPodPolicy,
    Elastic,
    Gang,
    Master,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    TrainJob,
    Worker,
)

__all__ = [
    "CleanPodPolicy",
    "Elastic",
    "Gang",
    "Master",
    "PyTorch",
    "RestartPolicy",
    "RunPolicy",
    "TrainJob",
    "Worker",
]

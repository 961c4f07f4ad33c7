"""Distributed PyTorch training as Flyte tasks: the values for ``@task(task_config=...)``.

Importing this package registers the task types with flytekit. It loads neither torch nor kubernetes.
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

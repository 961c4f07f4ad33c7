"""Distributed PyTorch training as Flyte tasks: the values for ``@task(task_config=...)``.

Importing this package registers the task types with flytekit. It loads neither torch nor kubernetes.
"""

from flytekitplugins.kfpytorch.task import (
    CleanPodPolicy,
    Elastic,
    Gang,
    Master,
    PodFailurePolicyRule,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    SuccessPolicy,
    TrainJob,
    Worker,
)

__all__ = [
    "CleanPodPolicy",
    "Elastic",
    "Gang",
    "Master",
    "PodFailurePolicyRule",
    "PyTorch",
    "RestartPolicy",
    "RunPolicy",
    "SuccessPolicy",
    "TrainJob",
    "Worker",
]

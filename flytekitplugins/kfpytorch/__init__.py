"""Distributed PyTorch training as Flyte tasks: the values for ``@task(task_config=...)``.

Importing this package registers the task types with flytekit. It loads neither torch nor kubernetes.
"""

from flytekitplugins.kfpytorch.task import (
    CleanPodPolicy,
    Dataset,
    Elastic,
    Gang,
    Master,
    Model,
    PodFailurePolicyRule,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    Storage,
    SuccessPolicy,
    Topology,
    TrainJob,
    Worker,
)

__all__ = [
    "CleanPodPolicy",
    "Dataset",
    "Elastic",
    "Gang",
    "Master",
    "Model",
    "PodFailurePolicyRule",
    "PyTorch",
    "RestartPolicy",
    "RunPolicy",
    "Storage",
    "SuccessPolicy",
    "Topology",
    "TrainJob",
    "Worker",
]

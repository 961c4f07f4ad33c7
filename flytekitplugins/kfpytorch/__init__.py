"""Distributed PyTorch training as Flyte tasks: the values for ``@task(task_config=...)``.

Importing this package registers the task types with flytekit. It loads neither torch nor kubernetes.
"""

from flytekitplugins.kfpytorch.data_sources import Dataset, Model, Storage
from flytekitplugins.kfpytorch.extension import Gang, TrainJob
from flytekitplugins.kfpytorch.task import (
    CleanPodPolicy,
    Elastic,
    Master,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    Worker,
)
from flytekitplugins.kfpytorch.train_job_policies import PodFailurePolicyRule, SuccessPolicy, Topology

__all__ = [
    "CleanPodPolicy", "Dataset", "Elastic", "Gang", "Master", "Model", "PodFailurePolicyRule", "PyTorch",
    "RestartPolicy", "RunPolicy", "Storage", "SuccessPolicy", "Topology", "TrainJob", "Worker",
]  # fmt: skip

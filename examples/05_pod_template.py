"""A training with a custom pod template: GPU nodes, and a volume for data.

The pod spec of a `PodTemplate` can be a plain dict or a model of the `kubernetes` package; this file shows
both. The plugin adds shared memory for data loaders to a copy of the template. A local run does not use the
templates, which describe the pods in a cluster. Run it:

    pyflyte run examples/05_pod_template.py both
"""

from typing import Any

import torch
import torch.distributed as dist
from flytekit import PodTemplate, task, workflow
from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker
from kubernetes.client import V1Container, V1EmptyDirVolumeSource, V1PodSpec, V1Volume, V1VolumeMount

GPU_NODES = {"cloud.google.com/gke-accelerator": "nvidia-l4"}

AS_DICT: dict[str, Any] = {
    "nodeSelector": GPU_NODES,
    "containers": [{"name": "trainer", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "20Gi"}}],
}

AS_MODELS = V1PodSpec(
    node_selector=GPU_NODES,
    containers=[V1Container(name="trainer", volume_mounts=[V1VolumeMount(name="data", mount_path="/data")])],
    volumes=[V1Volume(name="data", empty_dir=V1EmptyDirVolumeSource(size_limit="20Gi"))],
)


@task(
    task_config=PyTorch(worker=Worker(replicas=1)),
    pod_template=PodTemplate(pod_spec=AS_DICT, primary_container_name="trainer", labels={"team": "vision"}),
)
def train_on_replicas() -> int:
    return ranks()


@task(
    task_config=Elastic(nnodes=2, nproc_per_node=1),
    pod_template=PodTemplate(pod_spec=AS_MODELS, primary_container_name="trainer", labels={"team": "vision"}),
)
def train_elastically() -> int:
    return ranks()


@workflow
def both() -> tuple[int, int]:
    return train_on_replicas(), train_elastically()


def ranks() -> int:
    """Return the number of ranks; a real task would train here."""
    dist.init_process_group("gloo")
    answers = torch.ones(())
    dist.all_reduce(answers)
    dist.destroy_process_group()
    return int(answers)

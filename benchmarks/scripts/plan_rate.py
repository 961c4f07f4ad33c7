"""Measure for how many tasks per second one core creates the Kubernetes objects, with `plan`.

``python benchmarks/scripts/plan_rate.py TASKS [KIND]``: the tasks differ; half of them have a pod template.
KIND is ``PyTorchJob``, the default, or ``TrainJob``.
"""

import sys
from collections.abc import Iterator
from typing import Any

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core import settings
from backend_plugin.core.job import Attempt
from backend_plugin.core.pipeline import plan
from benchmarks.scripts.job_kinds import DEFAULT, KINDS
from benchmarks.scripts.rate import BATCH, measure_rate

CONTAINER = {
    "image": "image:1",
    "args": ["pyflyte-execute", "--inputs", "s3://bucket/inputs.pb", "--output-prefix", "s3://bucket/0"],
    "env": [{"key": "A", "value": "b"}],
    "resources": {
        "requests": [{"name": "CPU", "value": "2"}, {"name": "GPU", "value": "1"}],
        "limits": [{"name": "CPU", "value": "2"}, {"name": "GPU", "value": "1"}],
    },
}
POD = {
    "containers": [
        {
            "name": "primary",
            "image": "image:1",
            "args": CONTAINER["args"],
            "env": [{"name": "A", "value": "b"}],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
    ],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
}
TARGETS: tuple[dict[str, Any], ...] = (
    {"container": CONTAINER},
    {"k8sPod": {"podSpec": POD}, "config": {"primary_container_name": "primary"}},
)
KIND = KINDS[sys.argv[2] if len(sys.argv) > 2 else DEFAULT.name]
SETTINGS = settings.read({"kfpytorch": {"dialect": KIND.setting}})


def build_task(target: dict[str, Any]) -> TaskTemplate:
    amounts = [{"name": "CPU", "value": "1"}, {"name": "MEMORY", "value": "1Mi"}]
    custom = {
        # Master and workers have equal resources, because all nodes of a TrainJob are equal.
        "masterReplicas": {"replicas": 1, "resources": {"requests": amounts, "limits": amounts}},
        "workerReplicas": {
            "replicas": 1,
            "resources": {"requests": amounts, "limits": amounts},
            "restartPolicy": "RESTART_POLICY_ON_FAILURE",
        },
        "runPolicy": {"backoffLimit": 1},
    }
    return ParseDict({"type": "pytorch", "taskTypeVersion": 1, "custom": custom, **target}, TaskTemplate())


TASKS = tuple(build_task(target) for target in TARGETS)


def vary_task(index: int) -> TaskTemplate:
    """Return a task that differs from the others in all fields that usually vary."""
    template = TaskTemplate()
    template.CopyFrom(TASKS[index % len(TASKS)])
    template.custom.fields["runPolicy"].struct_value.fields["backoffLimit"].number_value = 1 + index % 5
    roles = [template.custom.fields[f"{role}Replicas"].struct_value.fields for role in ("master", "worker")]
    roles[1]["replicas"].number_value = 1 + index % 9
    for amounts in (each for role in roles for each in role["resources"].struct_value.fields.values()):
        cpu, memory = (each.struct_value.fields["value"] for each in amounts.list_value.values)
        cpu.string_value, memory.string_value = str(1 + index % 7), f"{1 + index}Mi"
    return template


def list_tasks(first: int, number: int) -> Iterator[tuple[TaskTemplate, Attempt]]:
    for index in range(first, first + number):
        run = Attempt(
            output_prefix=f"s3://bucket/metadata/propeller/p-d-f{index}/n0/data/0",
            project="p",
            domain="d",
            execution=f"f{index}",
            node_id="n0",
            attempt=0,
            task_project="p",
            task_domain="d",
            task_name="module.train",
            task_version="v1",
            namespace="p-d",
            labels={"execution-id": f"f{index}"},
        )
        yield vary_task(index), run


def list_batches(total: int) -> Iterator[list[tuple[TaskTemplate, Attempt]]]:
    for first in range(0, total, BATCH):
        yield list(list_tasks(first, BATCH))


if __name__ == "__main__":
    measure_rate(list_batches, lambda given: plan(given[0], given[1], SETTINGS))

"""How many jobs a second one core plans: all different, in a container and in a pod; and how memory grows.

Run by itself: ``python -m benchmarks.plan [THOUSANDS]``.
"""

import gc
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core import settings
from backend_plugin.core.job import Run
from backend_plugin.core.pipeline import plan

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
SETTINGS = settings.read({})


def tasks(first: int, number: int) -> Iterator[tuple[TaskTemplate, Run]]:
    """Tasks that differ in all that people vary."""
    for index in range(first, first + number):
        memory = [{"name": "CPU", "value": str(1 + index % 7)}, {"name": "MEMORY", "value": f"{1 + index}Mi"}]
        custom = {
            "masterReplicas": {"replicas": 1, "resources": {}},
            "workerReplicas": {
                "replicas": 1 + index % 9,
                "resources": {"requests": memory, "limits": memory},
                "restartPolicy": "RESTART_POLICY_ON_FAILURE",
            },
            "runPolicy": {"backoffLimit": 1 + index % 5},
        }
        said = {"type": "pytorch", "taskTypeVersion": 1, "custom": custom, **TARGETS[index % 2]}
        run = Run(
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
        yield ParseDict(said, TaskTemplate()), run


def main(thousands: int) -> None:
    spent = 0.0
    for batch in range(thousands):
        given = list(tasks(batch * 1_000, 1_000))
        gc.collect()
        start = time.process_time()
        for template, run in given:
            plan(template, run, SETTINGS)
        spent += time.process_time() - start
        if batch in (0, thousands // 2, thousands - 1):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{batch + 1:6} thousand: {(batch + 1) * 1_000 / spent:7,.0f} plans/s, {peak:.0f} MiB at most"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)

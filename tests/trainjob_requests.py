"""A TrainJob and its TrainingRuntime, and changes of them."""

from typing import Any

from builders import a_run, a_template

from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.embedded.objects import merge_patch

NAMESPACE = "trainer-requests"

Manifest = dict[str, Any]


def build_objects(nodes=2):
    custom = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": nodes - 1}}
    settings = read({"kfpytorch": {"dialect": "trainjob"}})
    planned = plan(a_template(custom), a_run(namespace=NAMESPACE), settings)
    (runtime,) = planned.prerequisites
    return {**planned.job}, {**runtime}


def change_replicated_job(runtime, change):
    """Return a runtime whose replicated job is changed by a merge patch."""
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    jobs = [merge_patch(replicated, change)]
    return {**merge_patch(runtime, {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}})}

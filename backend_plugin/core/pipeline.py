"""The page to read first: what a task becomes. Composes the stages; decides nothing."""

from collections.abc import Sequence

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core import custom
from backend_plugin.core.errors import gathered
from backend_plugin.core.job import Plan, Run
from backend_plugin.core.manifest import pod, pytorchjob
from backend_plugin.core.manifest.metadata import job_metadata
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest


def plan(
    template: TaskTemplate, run: Run, settings: Settings, pod_templates: Sequence[Manifest] = ()
) -> Plan:
    """Everything we would ask the cluster for, as a value.

    Raises:
        InvalidTask: If the task cannot be meant, with every problem that there is.
    """
    request = pod.PodRequest(template=template, run=run, settings=settings, pod_templates=pod_templates)
    with gathered() as problems:
        job = custom.decode(template, run, problems)
        pods = pod.pod_templates(request, job.groups)
    return Plan(manifests=(pytorchjob.build(job, job_metadata(template, run, pods[0]), pods),))

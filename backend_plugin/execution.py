"""Flyte's word for what is asked, and for whom → what `plan` takes.

Beside the core, which knows no messages of Flyte's services; called by whoever speaks to Flyte, or stands
in for it.
"""

from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core.job import OwnerReference, Run
from backend_plugin.core.manifest.pod_overrides import overridden


def asked(
    template: TaskTemplate,
    metadata: TaskExecutionMetadata,
    output_prefix: str,
    *,
    owner: OwnerReference | None = None,
) -> tuple[TaskTemplate, Run]:
    """The task as its node means it, and for whom."""
    return template_of(template, metadata), run_of(metadata, output_prefix, owner=owner)


def template_of(template: TaskTemplate, metadata: TaskExecutionMetadata) -> TaskTemplate:
    """The task as its node means it; the template itself where the node says nothing."""
    return overridden(template, metadata.overrides)


def run_of(
    metadata: TaskExecutionMetadata, output_prefix: str, *, owner: OwnerReference | None = None
) -> Run:
    """Who asks; mappings in the order of their keys, so that equal messages give equal manifests."""
    # Each look into a message makes an object for what is found there.
    attempt = metadata.task_execution_id
    task, node = attempt.task_id, attempt.node_execution_id
    execution = node.execution_id
    return Run(
        output_prefix=output_prefix,
        project=execution.project,
        domain=execution.domain,
        execution=execution.name,
        node_id=node.node_id,
        attempt=attempt.retry_attempt,
        task_project=task.project,
        task_domain=task.domain,
        task_name=task.name,
        task_version=task.version,
        namespace=metadata.namespace,
        labels=dict(sorted(metadata.labels.items())),
        annotations=dict(sorted(metadata.annotations.items())),
        service_account=metadata.k8s_service_account,
        environment=dict(sorted(metadata.environment_variables.items())),
        execution_identity=metadata.identity.execution_identity,
        owner=owner,
        preemptible=metadata.interruptible,
    )

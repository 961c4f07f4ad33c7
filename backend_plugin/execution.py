"""The conversion of a task template and its execution metadata to the input of `plan`.

It is separate from the core, which does not use the messages of Flyte's services.
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
    """Return the task template with its overrides applied, and the attempt."""
    return template_of(template, metadata), run_of(metadata, output_prefix, owner=owner)


def template_of(template: TaskTemplate, metadata: TaskExecutionMetadata) -> TaskTemplate:
    """Return the task template with the overrides of its Flyte node; the same object if there are none."""
    return overridden(template, metadata.overrides)


def run_of(
    metadata: TaskExecutionMetadata, output_prefix: str, *, owner: OwnerReference | None = None
) -> Run:
    """Return the attempt; its maps are sorted by key, so that equal messages give equal manifests."""
    # Each access to a message field creates a Python object.
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

"""The conversion of a task template and its execution metadata to the input of `core.pipeline.plan`."""

from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core.job import Attempt
from backend_plugin.core.manifest.pod_overrides import with_overrides


def apply_overrides(template: TaskTemplate, metadata: TaskExecutionMetadata) -> TaskTemplate:
    """Return the task template with the overrides of its Flyte node; the same object if there are none."""
    return with_overrides(template, metadata.overrides)


def read_attempt(metadata: TaskExecutionMetadata, output_prefix: str) -> Attempt:
    """Return the attempt; its maps are sorted by key, so that equal messages give equal manifests."""
    # Read each nested message once, because each access creates a Python object.
    attempt = metadata.task_execution_id
    task, node = attempt.task_id, attempt.node_execution_id
    execution = node.execution_id
    return Attempt(
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
        preemptible=metadata.interruptible,
    )

"""The conversion of the execution metadata of a task to the attempt that `core.pipeline.plan` reads."""

from flyteidl.admin.agent_pb2 import TaskExecutionMetadata

from backend_plugin.core.job import Attempt


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

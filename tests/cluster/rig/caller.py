"""Calls a server as propeller does, without a workflow around it: tasks, and what is said of them."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict
from propeller.wire import SERVICE_CONFIG, Wire, delete_request, get_request

from backend_plugin.core import job_ref

_SECONDS: Final = 10
"""Propeller's own patience with a call."""


@dataclass(kw_only=True)
class Attempt:
    """One attempt of one task."""

    execution: str
    number: int
    prefix: str
    meta: bytes = b""
    """The reference to it, once it was created."""

    @property
    def job(self) -> str:
        """The name of its job; empty where it was refused."""
        return job_ref.decode(self.meta).name

    @property
    def uid(self) -> str | None:
        return job_ref.decode(self.meta).uid


@dataclass(frozen=True, kw_only=True)
class Said:
    """What GetTask has answered."""

    phase: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a task asks for."""

    workers: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    run_policy: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0
    """Of each replica."""
    custom: Mapping[str, Any] = field(default_factory=dict)
    """More of it."""


class Caller:
    """A connection to a server, for tasks of one namespace; a context.

    Args:
        endpoint: Where the server is.
        store: Where tasks write.
        namespace: Where their jobs are made.
        again: Whether the connection asks again while nobody listens, as our chart has propeller do.
    """

    def __init__(self, endpoint: str, store: Path, namespace: str, *, again: bool = True) -> None:
        self.wire = Wire(endpoint, service_config=SERVICE_CONFIG if again else None, deadline=_SECONDS)
        self._store = store
        self._namespace = namespace

    def __enter__(self) -> "Caller":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wire.close()

    def attempt(self, number: int = 0, execution: str = "") -> Attempt:
        """One that is yet to be created."""
        execution = execution or f"f{uuid.uuid4().hex[:12]}"
        prefix = (self._store / execution / "n0" / "data" / str(number)).as_uri()
        return Attempt(execution=execution, number=number, prefix=prefix)

    def create(self, attempt: Attempt | None = None, shape: Shape | None = None) -> Attempt:
        """Have it created; raises what the call raises."""
        attempt = attempt or self.attempt()
        attempt.meta = self.wire.create(self._request(attempt, shape or Shape()))
        return attempt

    def get(self, attempt: Attempt) -> Said:
        """What is to be believed of it; raises what the call raises."""
        resource = self.wire.get(get_request(attempt.meta, attempt.prefix)).result().resource
        return Said(phase=TaskExecution.Phase.Name(resource.phase), message=resource.message)

    def delete(self, attempt: Attempt) -> None:
        """Have its job deleted; raises what the call raises."""
        self.wire.delete(delete_request(attempt.meta))

    def succeeded(self, attempt: Attempt) -> None:
        """Leave what the task of a pod leaves that ends well."""
        folder = Path(attempt.prefix.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "outputs.pb").write_bytes(b"")

    def _request(self, attempt: Attempt, shape: Shape) -> admin.CreateTaskRequest:
        execution = {"project": "p", "domain": "d", "name": attempt.execution}
        metadata = {
            "taskExecutionId": {
                "nodeExecutionId": {"nodeId": "n0", "executionId": execution},
                "retryAttempt": attempt.number,
            },
            "namespace": self._namespace,
            "labels": {"execution-id": attempt.execution},
            "annotations": dict(shape.annotations),
        }
        return admin.CreateTaskRequest(
            template=_template(shape),
            output_prefix=attempt.prefix,
            task_execution_metadata=ParseDict(metadata, admin.TaskExecutionMetadata()),
        )


def _template(shape: Shape) -> TaskTemplate:
    custom: dict[str, Any] = {
        "workerReplicas": {"replicas": shape.workers},
        "masterReplicas": {"replicas": 1},
        **shape.custom,
    }
    if shape.run_policy:
        custom["runPolicy"] = dict(shape.run_policy)
    container: dict[str, Any] = {"image": "image:1", "args": ["pyflyte-execute", "--output-prefix", "o"]}
    if shape.gpus:
        container["resources"] = {"limits": [{"name": "GPU", "value": str(shape.gpus)}]}
    said = {"type": "pytorch", "taskTypeVersion": 1, "container": container, "custom": custom}
    return ParseDict(said, TaskTemplate())


def code_of(error: grpc.RpcError) -> str:
    """The code with which a call was refused."""
    return str(error.code().name)

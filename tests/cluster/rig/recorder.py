"""Where propeller sends its events, in place of flyteadmin: what they say is what a user sees."""

import threading
import time
from concurrent import futures
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
from flyteidl.admin import event_pb2
from flyteidl.core import execution_pb2
from flyteidl.event import event_pb2 as events
from flyteidl.service import admin_pb2_grpc


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One phase of one attempt of a task, as it is shown."""

    execution: str
    node: str
    attempt: int
    phase: str
    reason: str
    code: str
    """Of the error; empty without one."""
    message: str
    """Of the error."""
    kind: str
    """``USER`` or ``SYSTEM``, of the error."""
    logs: tuple[str, ...]
    """Where the logs are."""
    at: float
    """When, in seconds of `time.time`."""


class Recorder(admin_pb2_grpc.AdminServiceServicer):
    """The half of AdminService that takes events; a context that serves it on loopback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: list[tuple[float, events.TaskExecutionEvent]] = []
        self._nodes: list[events.NodeExecutionEvent] = []
        self._workflows: list[events.WorkflowExecutionEvent] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> "Recorder":
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()

    def tasks(self, execution: str) -> list[Shown]:
        """What was shown of the tasks of an execution, in order."""
        with self._lock:
            return [
                _shown(each, at)
                for at, each in self._tasks
                if each.parent_node_execution_id.execution_id.name == execution
            ]

    def workflow(self, execution: str) -> list[str]:
        """The phases of an execution, in order."""
        name = execution_pb2.WorkflowExecution.Phase.Name
        with self._lock:
            return [name(each.phase) for each in self._workflows if each.execution_id.name == execution]

    def nodes(self, execution: str) -> list[events.NodeExecutionEvent]:
        """What was said of its nodes, in order."""
        with self._lock:
            return [each for each in self._nodes if each.id.execution_id.name == execution]

    # ---- what propeller calls, by its names

    def CreateTaskEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A task has reached a phase."""
        with self._lock:
            self._tasks.append((time.time(), request.event))
        return event_pb2.TaskExecutionEventResponse()

    def CreateNodeEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A node has."""
        with self._lock:
            self._nodes.append(request.event)
        return event_pb2.NodeExecutionEventResponse()

    def CreateWorkflowEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The execution has."""
        with self._lock:
            self._workflows.append(request.event)
        return event_pb2.WorkflowExecutionEventResponse()


def _shown(event: events.TaskExecutionEvent, at: float) -> Shown:
    has_error = event.WhichOneof("output_result") == "error"
    kind = execution_pb2.ExecutionError.ErrorKind.Name(event.error.kind) if has_error else ""
    # Newer messages carry several reasons.
    reasons = [each.reason for each in event.reasons] or [event.reason]
    return Shown(
        execution=event.parent_node_execution_id.execution_id.name,
        node=event.parent_node_execution_id.node_id,
        attempt=event.retry_attempt,
        phase=execution_pb2.TaskExecution.Phase.Name(event.phase),
        reason="\n".join(reasons),
        code=event.error.code if has_error else "",
        message=event.error.message if has_error else "",
        kind=kind,
        logs=tuple(log.uri for log in event.logs),
        at=at,
    )

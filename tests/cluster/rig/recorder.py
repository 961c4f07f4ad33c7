"""Receives the events of propeller in place of flyteadmin: they contain what a user sees."""

import threading
import time
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from flyteidl.admin import event_pb2
from flyteidl.core import execution_pb2
from flyteidl.event import event_pb2 as events
from flyteidl.service import admin_pb2_grpc


@dataclass(frozen=True, kw_only=True)
class RecordedPhase:
    """One phase of a task attempt, as users see it."""

    node: str
    attempt: int
    phase: str
    reason: str
    message: str
    """The error message; empty without an error."""
    kind: str
    """The kind of the error, `USER` or `SYSTEM`."""
    at: float
    """The time of arrival, in seconds since the epoch."""


class Recorder(admin_pb2_grpc.AdminServiceServicer):
    """The event methods of AdminService; a context manager that serves them on loopback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: list[tuple[float, events.TaskExecutionEvent]] = []
        self._workflows: list[events.WorkflowExecutionEvent] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> "Recorder":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def tasks(self, execution: str) -> list[RecordedPhase]:
        """Return the task events of an execution, in order of arrival."""
        with self._lock:
            return [
                _decode_event(each, at)
                for at, each in self._tasks
                if each.parent_node_execution_id.execution_id.name == execution
            ]

    def workflow(self, execution: str) -> list[str]:
        """Return the phases of an execution, in order of arrival."""
        name = execution_pb2.WorkflowExecution.Phase.Name
        with self._lock:
            return [name(each.phase) for each in self._workflows if each.execution_id.name == execution]

    # ---- gRPC methods, which have the names of the service definition

    def CreateTaskEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record an event of a task."""
        with self._lock:
            self._tasks.append((time.time(), request.event))
        return event_pb2.TaskExecutionEventResponse()

    def CreateNodeEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Ignore an event of a node."""
        return event_pb2.NodeExecutionEventResponse()

    def CreateWorkflowEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record an event of a workflow."""
        with self._lock:
            self._workflows.append(request.event)
        return event_pb2.WorkflowExecutionEventResponse()


def _decode_event(event: events.TaskExecutionEvent, at: float) -> RecordedPhase:
    has_error = event.WhichOneof("output_result") == "error"
    kind = execution_pb2.ExecutionError.ErrorKind.Name(event.error.kind) if has_error else ""
    # Newer propellers send a list of reasons.
    reasons = [each.reason for each in event.reasons] or [event.reason]
    return RecordedPhase(
        node=event.parent_node_execution_id.node_id,
        attempt=event.retry_attempt,
        phase=execution_pb2.TaskExecution.Phase.Name(event.phase),
        reason="\n".join(reasons),
        message=event.error.message if has_error else "",
        kind=kind,
        at=at,
    )

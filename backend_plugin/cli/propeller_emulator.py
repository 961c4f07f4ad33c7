"""Calls a connector as FlytePropeller does: CreateTask, then GetTask until the task ends."""

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2
from flyteidl.core import errors_pb2
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.literals_pb2 import LiteralMap
from flyteidl.core.tasks_pb2 import TaskTemplate
from flyteidl.service import agent_pb2_grpc

from backend_plugin.cli.sample_attempt import Place, with_filled_arguments

_CALL_SECONDS: Final = 10.0
# FlytePropeller's minimum of five seconds is too slow for a demo.
_RESYNC_SECONDS: Final = 0.3
_MAX_SYSTEM_FAILURES: Final = 5
_SHOWN: Final = ("WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """A Flyte node that runs one task."""

    template: TaskTemplate
    inputs: LiteralMap
    store: Path
    """The directory of inputs and outputs."""
    execution: str

    @property
    def _place(self) -> Place:
        task = self.template.id
        return Place(project=task.project, domain=task.domain, execution=self.execution)

    @property
    def retries(self) -> int:
        """The maximum number of further attempts after retryable failures."""
        return int(self.template.metadata.retries.retries)

    @property
    def data_directory(self) -> Path:
        """Return the directory below `store` for the inputs and outputs of this Flyte node."""
        return self.store / self._place.data_directory

    def get_output_directory(self, attempt: int) -> Path:
        """Return the output directory of an attempt."""
        return self.data_directory / str(attempt)

    def write_inputs(self) -> None:
        """Write the inputs to the file that each attempt reads."""
        self.data_directory.mkdir(parents=True, exist_ok=True)
        (self.data_directory / "inputs.pb").write_bytes(self.inputs.SerializeToString())

    def build_request(self, attempt: int) -> agent_pb2.CreateTaskRequest:
        """Return the create request of an attempt."""
        variables = self._place.build_variables(self.store.as_uri(), attempt)
        return agent_pb2.CreateTaskRequest(
            template=with_filled_arguments(self.template, variables),
            inputs=self.inputs,
            output_prefix=variables["outputprefix"],
            task_execution_metadata=self._place.build_metadata(self.template, attempt),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPhase:
    """A phase as Flyte's console shows it: once per attempt, with its first message."""

    attempt: int
    phase: str
    message: str
    logs: tuple[tuple[str, str], ...] = ()
    """The log links: pairs of name and URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSucceeded:
    """The Flyte node succeeded."""

    outputs: LiteralMap = field(default_factory=LiteralMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed:
    """The result of a failed attempt, and of a Flyte node whose last attempt failed."""

    code: str
    message: str
    retry: bool = False
    """True if another attempt may follow."""


End = NodeSucceeded | NodeFailed
_Attempt = Generator[ReportedPhase, None, End]


class PropellerEmulator:
    """A client that runs Flyte nodes through a connector, one attempt after the other."""

    def __init__(
        self,
        channel: grpc.Channel,
        metadata: tuple[tuple[str, str | bytes], ...],
        resync: float = _RESYNC_SECONDS,
    ) -> None:
        """Store the channel, the metadata of every call, and the seconds between two GetTask calls."""
        self._stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        self._resync = resync
        self._call_options = {"metadata": metadata, "timeout": _CALL_SECONDS}

    def run_node(self, node: TaskNode) -> Generator[ReportedPhase | End, None, None]:
        """Yield the phases of all attempts of a Flyte node, and finally its result.

        If the caller closes this generator early, the running attempt is deleted.
        """
        node.write_inputs()
        last = node.retries
        for attempt in range(last + 1):
            end = yield from self._run_attempt(node, attempt)
            if isinstance(end, NodeSucceeded) or not end.retry:
                yield end
                return
            if attempt < last:
                yield ReportedPhase(attempt=attempt, phase="RETRYABLE_FAILED", message=end.message)
                continue
            summary = f"[{last + 1}/{last + 1}] currentAttempt done. Last Error: USER::{end.message}"
            yield NodeFailed(code=f"RetriesExhausted|{end.code}", message=summary)

    def _run_attempt(self, node: TaskNode, attempt: int) -> _Attempt:
        """Create the task of one attempt, yield the phases that the connector reports, and return the result.

        Call DeleteTask if another attempt follows, or if the caller closes this generator before the end.
        """
        try:
            created = self._stub.CreateTask(node.build_request(attempt), **self._call_options)
        except grpc.RpcError as error:
            code, details = _read_status(error)
            status = f"rpc error: code = {code} desc = {details}"
            message = f"failed to create task from connector with {status}"
            return NodeFailed(code="TaskFailedWithError", message=message, retry=True)
        meta, end = bytes(created.resource_meta), None
        try:
            # FlytePropeller publishes QUEUED itself after CreateTask, and ignores QUEUED from the connector.
            yield ReportedPhase(attempt=attempt, phase="QUEUED", message="")
            end = yield from self._poll_task(node, attempt, meta)
        finally:
            # FlytePropeller sends no DeleteTask after success or a final failure.
            if end is None or (isinstance(end, NodeFailed) and end.retry and attempt < node.retries):
                self._stub.DeleteTask(agent_pb2.DeleteTaskRequest(resource_meta=meta), **self._call_options)
        return end

    def _poll_task(self, node: TaskNode, attempt: int, meta: bytes) -> _Attempt:
        request = agent_pb2.GetTaskRequest(
            task_type=node.template.type,
            resource_meta=meta,
            task_category={"name": node.template.type, "version": node.template.task_type_version},
            output_prefix=node.get_output_directory(attempt).as_uri(),
        )
        published: set[str] = set()
        failures = 0
        while True:
            try:
                resource = self._stub.GetTask(request, **self._call_options).resource
            except grpc.RpcError as error:
                failures += 1
                if failures > _MAX_SYSTEM_FAILURES:
                    return NodeFailed(code="AutoRefreshCacheFailed", message=": ".join(_read_status(error)))
            else:
                phase = _decode_phase(attempt, resource)
                if (end := _find_end(node, phase)) is not None:
                    return end
                if phase.phase in _SHOWN and phase.phase not in published:
                    published.add(phase.phase)
                    yield phase
            time.sleep(self._resync)


def _decode_phase(attempt: int, resource: Any) -> ReportedPhase:
    phase = TaskExecution.Phase.Name(resource.phase)
    return ReportedPhase(
        attempt=attempt,
        phase=phase,
        # FlytePropeller publishes RUNNING without its message.
        message="" if phase == "RUNNING" else resource.message,
        logs=tuple((link.name, link.uri) for link in resource.log_links),
    )


def _find_end(node: TaskNode, reported: ReportedPhase) -> End | None:
    """Return the result of an attempt from its `reported` phase, or None if the attempt continues."""
    message = f"failed to run the job: {reported.message}"
    match reported.phase:
        case "SUCCEEDED":
            return _read_output_files(node, node.get_output_directory(reported.attempt))
        case "FAILED":
            return NodeFailed(code="TaskFailedWithError", message=message)
        case "ABORTED":
            return NodeFailed(code="TaskFailedWithError", message="failed to run the job with aborted phase.")
        case "RETRYABLE_FAILED" | "UNDEFINED":
            return NodeFailed(code="TaskFailedWithError", message=message, retry=True)
        case _:
            return None


def _read_output_files(node: TaskNode, output: Path) -> End:
    """Return success if the task declares no outputs, else the result in the files in `output`."""
    if not node.template.interface.outputs.variables:
        return NodeSucceeded()
    if (output / "error.pb").exists():
        error = errors_pb2.ErrorDocument.FromString((output / "error.pb").read_bytes()).error
        recoverable = error.kind == errors_pb2.ContainerError.RECOVERABLE
        return NodeFailed(code=error.code, message=error.message, retry=recoverable)
    if (output / "outputs.pb").exists():
        return NodeSucceeded(outputs=LiteralMap.FromString((output / "outputs.pb").read_bytes()))
    return NodeFailed(code="OutputsNotFound", message="outputs.pb was not found", retry=True)


def _read_status(error: Any) -> tuple[str, str]:
    return str(error.code().name), str(error.details())

"""Runs the attempts of a node until its end, by the rules with which propeller interprets responses."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from flyteidl.admin import agent_pb2
from flyteidl.core import errors_pb2, literals_pb2
from flytekit.core.base_task import PythonTask

from propeller.arrival import TaskRequest, build_request
from propeller.attempt import Follower
from propeller.record import Attempt, Outcome, Shown, phase_of
from propeller.wire import Wire, delete_request

_TICK = 0.02
_NEVER_POLLED = "AutoRefreshCacheFailed"
# Seconds between two evaluations of the cache; responses that are replaced in between are lost.
_REEVALUATE = 0.05
_MAX_WORKFLOW_RETRIES = 10


class Stuck(AssertionError):
    """The execution does not end; the message has its state."""


class Execution:
    """The execution of one node, driven by a separate thread."""

    def __init__(self, wire: Wire, asked: TaskRequest, max_failures: int) -> None:
        self.asked = asked
        self.attempts: list[Attempt] = []
        self.calls: list[str] = []
        """The calls other than GetTask, in order: `CreateTask 0`, `DeleteTask 0`."""
        self._wire = wire
        self._max_failures = max_failures
        self._follower: Follower | None = None
        self._violations: list[str] = []
        self._outcome: Outcome | None = None
        self._crash: BaseException | None = None
        self._aborting = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._drive, daemon=True)

    # ---- methods for tests

    def start(self) -> "Execution":
        self._thread.start()
        return self

    def abort(self) -> None:
        """Abort the execution, as a user does."""
        self._aborting.set()

    def delete(self, attempt: int) -> None:
        """Call DeleteTask outside of propeller's rules. Raises the error of the call."""
        meta = self.attempts[attempt].meta
        assert meta is not None
        self._wire.delete(delete_request(meta))

    def wait(self, seconds: float = 60) -> Outcome:
        if not self._ended.wait(seconds):
            raise Stuck(f"no end after {seconds} s: {self.attempts}")
        if self._crash is not None:
            raise self._crash
        assert self._outcome is not None
        return self._outcome

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait_until(self, *phases: str, seconds: float = 60) -> Attempt:
        """Wait for one of these phases, and return the attempt that first reports it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for attempt in list(self.attempts):
                if set(attempt.phases) & set(phases):
                    return attempt
            if self._ended.is_set():
                break
            time.sleep(_TICK)
        raise Stuck(f"{phases} not shown: {self.attempts}, {self._outcome or self._crash}")

    # ---- evaluation

    def _drive(self) -> None:
        try:
            self._attempt_next()
            evaluated = 0.0
            while self._outcome is None:
                assert self._follower is not None
                if self._aborting.is_set():
                    self._abort()
                    break
                self._follower.poll()
                if time.monotonic() - evaluated >= _REEVALUATE:
                    evaluated = time.monotonic()
                    self._evaluate()
                self._aborting.wait(_TICK)
        except BaseException as error:  # noqa: BLE001 - raised again by `wait`
            self._crash = error
        finally:
            self._ended.set()

    def _attempt_next(self) -> None:
        record = Attempt(len(self.attempts))
        self.attempts.append(record)
        self._follower = Follower(self._wire, self.asked, record, self._max_failures)
        self.calls.append(f"CreateTask {record.number}")
        try:
            self._follower.create()
        except grpc.RpcError as error:
            reason = f"rpc error: code = {error.code().name} desc = {error.details()}"
            # No task was stored, so none is deleted.
            self._retry("TaskFailedWithError", f"failed to create task from connector with {reason}")
            return
        # This counts as QUEUED, so the QUEUED of the connector is never published.
        record.show(Shown("QUEUED", "launched"))

    def _evaluate(self) -> None:
        assert self._follower is not None
        follower, record = self._follower, self._follower.record
        resource = follower.latest
        if resource is None:
            if follower.is_frozen:
                self._fail(_NEVER_POLLED, follower.trouble)
            return
        _publish(record, resource)
        end: Callable[[agent_pb2.Resource], None] | None = self._ends.get(phase_of(resource))
        if end is not None:
            end(resource)
        elif follower.is_frozen:
            raise Stuck(f"no more calls after {follower.failures} failures: {follower.trouble}")

    @property
    def _ends(self) -> dict[str, Callable[[agent_pb2.Resource], None]]:
        code, failed = "TaskFailedWithError", "failed to run the job"
        return {
            "SUCCEEDED": lambda _: self._read_files(),
            "FAILED": lambda resource: self._fail(code, f"{failed}: {resource.message}"),
            "ABORTED": lambda _: self._fail(code, f"{failed} with aborted phase."),
            "RETRYABLE_FAILED": lambda resource: self._retry(code, f"{failed}: {resource.message}"),
            "UNDEFINED": lambda _: self._retry(code, f"{failed}.\n"),
        }

    # ---- end of an attempt

    def _read_files(self) -> None:
        """Read the outputs. A task without declared outputs succeeds without reading files."""
        if not self.asked.has_outputs:
            self._finish("SUCCEEDED")
            return
        folder = self.asked.output(self.attempts[-1].number)
        if (folder / "error.pb").exists():
            self._read_error(folder / "error.pb")
        elif (folder / "outputs.pb").exists():
            read = literals_pb2.LiteralMap.FromString((folder / "outputs.pb").read_bytes())
            self._finish("SUCCEEDED", outputs=self.asked.values(read))
        else:
            self._retry("OutputsNotFound", "outputs.pb was not found")

    def _read_error(self, path: Path) -> None:
        error = errors_pb2.ErrorDocument.FromString(path.read_bytes()).error
        if error.kind == errors_pb2.ContainerError.RECOVERABLE:
            self._retry(error.code, error.message)
        else:
            self._fail(error.code, error.message)

    def _retry(self, code: str, message: str) -> None:
        """Delete the task and start the next attempt. After the last attempt, fail without a deletion."""
        spent = len(self.attempts)
        self.attempts[-1].show(Shown("RETRYABLE_FAILED", message))
        if spent > self.asked.retries:
            error = f"[{spent}/{spent}] currentAttempt done. Last Error: USER::{message}"
            self._finish("FAILED", code=f"RetriesExhausted|{code}", error=error)
        elif self._deleted():
            self._leave()
            self._attempt_next()

    def _fail(self, code: str, message: str) -> None:
        self._finish("FAILED", code=code, error=message)

    def _abort(self) -> None:
        if self._deleted():
            self._finish("ABORTED", error="Workflow aborted.")

    def _deleted(self) -> bool:
        """Delete the task; repeat a failing call immediately, and fail the workflow after too many errors."""
        assert self._follower is not None
        if self._follower.record.meta is None:
            return True
        trouble = ""
        for _ in range(1 + _MAX_WORKFLOW_RETRIES):
            self.calls.append(f"DeleteTask {self._follower.record.number}")
            try:
                self._follower.delete()
            except grpc.RpcError as error:
                trouble = f"{error.code().name}: {error.details()}"
            else:
                return True
        self._violations.append(f"DeleteTask failed: {trouble}")
        self._finish("FAILED", code="Workflow abort failed", error=trouble)
        return False

    def _leave(self) -> None:
        assert self._follower is not None
        self._violations += self._follower.violations

    def _finish(self, phase: str, **result: Any) -> None:
        self._leave()
        self.attempts[-1].show(Shown(phase, result.get("error", "")))
        self._outcome = Outcome(
            phase=phase,
            attempts=tuple(self.attempts),
            outputs=result.get("outputs", {}),
            code=result.get("code", ""),
            error=result.get("error", ""),
            violations=tuple(self._violations),
        )


def _publish(record: Attempt, resource: agent_pb2.Resource) -> None:
    phase = phase_of(resource)
    if phase in ("WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING"):
        record.show(Shown(phase, "" if phase == "RUNNING" else resource.message))


class Propeller:
    """Runs tasks with a connector."""

    def __init__(self, wire: Wire, store: Path, max_system_failures: int = 5) -> None:
        self.wire = wire
        self._store = store
        self._max_failures = max_system_failures

    def prepare(self, task: PythonTask, inputs: dict[str, Any] | None = None, **options: Any) -> Execution:
        """Return an execution that is not started."""
        asked = build_request(task, inputs or {}, self._store, **options)
        return Execution(self.wire, asked, self._max_failures)

    def start(self, task: PythonTask, **inputs: Any) -> Execution:
        return self.prepare(task, inputs).start()

"""Executions of single tasks, each driven by a thread, with a record of what a user sees in Flyte."""

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from flyteidl.core import execution_pb2, literals_pb2
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import LiteralMap
from flytekit.tools.translator import get_serializable
from google.protobuf import json_format

from backend_plugin.cli.propeller_emulator import (
    NodeFailed,
    NodeSucceeded,
    PropellerEmulator,
    ReportedPhase,
    TaskNode,
)

_RESYNC = 0.2  # The polling interval in seconds; propeller's minimum is 5.
_ORDER = ("QUEUED", "WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING")
# All other phases require a message. The message of RUNNING is never published.
_WORDLESS = frozenset({"QUEUED", "RUNNING", "SUCCEEDED"})
_PASSING = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Aborted(Exception):
    """A user has aborted the execution."""


@dataclass
class Attempt:
    number: int
    meta: bytes | None = None  # None until CreateTask has returned.
    shown: list[ReportedPhase] = field(default_factory=list)
    reached: int = 0  # The position of the last phase, in the order of phases.

    @property
    def phases(self):
        return [each.phase for each in self.shown]

    def message(self, phase):
        (found,) = [each.message for each in self.shown if each.phase == phase]
        return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    phase: str  # SUCCEEDED, FAILED or ABORTED.
    attempts: Sequence[Attempt]
    outputs: Mapping[str, Any]
    code: str
    error: str
    violations: Sequence[str]  # Violations of the connector protocol.

    @property
    def last(self):
        return self.attempts[-1]


class Execution(grpc.UnaryUnaryClientInterceptor):
    """The execution of one node, which records its calls as their interceptor."""

    def __init__(self, wire, task, node):
        self.node = node
        self.attempts = []
        self.calls = []  # The calls other than GetTask, in order: `CreateTask 0`, `DeleteTask 0`.
        self._wire = wire
        self._task = task
        self._violations = []
        self._aborting = threading.Event()
        self._outcome = futures.Future()

    def start(self):
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def abort(self):
        self._aborting.set()

    def wait(self, seconds=60):
        futures.wait([self._outcome], seconds)
        assert self.has_ended, f"no end after {seconds} s: {self.attempts}"
        return self._outcome.result()

    @property
    def has_ended(self):
        return self._outcome.done()

    def wait_until(self, phase, seconds=60):
        """Wait for this phase, and return the attempt that first reports it."""
        deadline = time.monotonic() + seconds
        while True:
            is_last = self.has_ended
            for attempt in list(self.attempts):
                if phase in attempt.phases:
                    return attempt
            assert not is_last, f"{phase} not shown: {self._outcome}"
            assert time.monotonic() < deadline, f"{phase} not shown: {self.attempts}"
            time.sleep(0.02)

    def intercept_unary_unary(self, continuation, details, request):
        """Record a call. Repeat it while the server is unavailable, as propeller does with our chart."""
        method = details.method.rpartition("/")[2]
        if method == "CreateTask":
            self.attempts.append(Attempt(len(self.attempts)))
        attempt = self.attempts[-1]
        if method != "GetTask":
            self.calls.append(f"{method} {attempt.number}")
        elif self._aborting.is_set():
            raise Aborted
        while (call := continuation(details, request)).code() in _PASSING:
            pass
        if call.code() is not grpc.StatusCode.OK:
            self._violations.append(f"{method} raised {call.code().name}: {call.details()}")
        elif method == "CreateTask":
            attempt.meta = call.result().resource_meta
        elif method == "GetTask":
            self._violations += against_the_rules(attempt, call.result().resource)
        return call

    def _run(self):
        try:
            self._outcome.set_result(self._build_outcome(self._run_attempts()))
        except BaseException as error:  # noqa: BLE001 - raised again by `wait`
            self._outcome.set_exception(error)

    def _run_attempts(self):
        """Run all attempts, and return their result, or None if the execution was aborted."""
        channel = grpc.intercept_channel(self._wire.channel, self)
        emulator = PropellerEmulator(channel, tuple(self._wire.metadata), _RESYNC)
        try:
            for event in emulator.run_node(self.node):
                if not isinstance(event, ReportedPhase):
                    return event
                self.attempts[event.attempt].shown.append(event)
        except Aborted:
            pass
        return None

    def _build_outcome(self, end):
        phase, code, error, outputs = "ABORTED", "", "", {}
        if isinstance(end, NodeSucceeded):
            phase, outputs = "SUCCEEDED", self._decode_outputs(end.outputs)
        elif isinstance(end, NodeFailed):
            phase, code, error = "FAILED", end.code, end.message
        last = self.attempts[-1]
        last.shown.append(ReportedPhase(attempt=last.number, phase=phase, message=error))
        return Outcome(
            phase=phase,
            attempts=tuple(self.attempts),
            outputs=outputs,
            code=code,
            error=error,
            violations=tuple(self._violations),
        )

    def _decode_outputs(self, outputs):
        # flytekit does not open file URLs.
        text = json_format.MessageToJson(outputs).replace('"uri": "file://', '"uri": "')
        read = LiteralMap.from_flyte_idl(json_format.Parse(text, literals_pb2.LiteralMap()))
        context, types = FlyteContextManager.current_context(), self._task.python_interface.outputs
        return TypeEngine.literal_map_to_kwargs(context, read, types) if outputs.literals else {}


def against_the_rules(attempt, resource):
    """Return the violations in a response, and record its position in the order of phases."""
    phase = phase_of(resource)
    position = _ORDER.index(phase) if phase in _ORDER else len(_ORDER)
    wrong = []
    if phase in ("UNDEFINED", "ABORTED"):
        wrong.append(f"{phase} has an empty message")
    if position < attempt.reached:
        wrong.append(f"{phase} after something later: {resource.message!r}")
    if phase not in _WORDLESS and not resource.message.strip():
        wrong.append(f"{phase} without a message")
    if resource.HasField("outputs"):
        wrong.append(f"{phase} with outputs, which are the store's to hold")
    attempt.reached = max(attempt.reached, position)
    return wrong


def phase_of(resource):
    return str(execution_pb2.TaskExecution.Phase.Name(resource.phase))


class Propeller:
    def __init__(self, wire, store):
        self._wire = wire
        self._store = store

    def prepare(self, task, inputs, image="image:1"):
        settings = SerializationSettings(
            project="project",
            domain="development",
            version="v1",
            image_config=ImageConfig(default_image=Image.look_up_image_info("default", image)),
        )
        context = FlyteContextManager.current_context()
        literals = TypeEngine.dict_to_literal_map(context, dict(inputs), task.python_interface.inputs)
        node = TaskNode(
            template=get_serializable(OrderedDict(), settings, task).template.to_flyte_idl(),
            inputs=literals.to_flyte_idl(),
            store=self._store,
            execution=f"f{uuid.uuid4().hex[:19]}",
        )
        return Execution(self._wire, task, node)

    def start(self, task, **inputs):
        return self.prepare(task, inputs).start()

"""The FlytePropeller of the tests follows the rules of the real one, with a scripted server."""

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from flyteidl.admin import agent_pb2
from flyteidl.core import errors_pb2, execution_pb2, literals_pb2, tasks_pb2
from flyteidl.service import agent_pb2_grpc
from flytekit import task
from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from propeller import Attempt, Execution, Propeller, PropellerSettings, Shown, Wire
from propeller.arrival import build_request
from propeller.attempt import Polling

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker

QUICK = PropellerSettings(polling=Polling(resync=0.005), reevaluate=0.005)


@task(task_config=PyTorch(worker=Worker(replicas=1)), retries=1)
def add(a: int) -> int:
    return a + 1


@task(task_config=Elastic(nnodes=2, increase_shared_mem=False))
def nothing() -> None: ...


def answer(said: str) -> agent_pb2.GetTaskResponse:
    phase, _, message = said.partition(":")
    number = execution_pb2.TaskExecution.Phase.Value(phase)
    return agent_pb2.GetTaskResponse(resource=agent_pb2.Resource(phase=number, message=message))


class ScriptedConnector(agent_pb2_grpc.AsyncAgentServiceServicer):
    """A connector that answers each attempt from its script, and repeats the last response.

    A status code in a script aborts the call.
    """

    def __init__(self, *scripts: list[Any], create: list[Any] | None = None, delete: list[Any] | None = None):
        self.scripts = scripts
        self.create = create or []
        self.delete = delete or []
        self.asked: list[Any] = []
        self.lock = threading.Lock()

    def CreateTask(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - gRPC finds it by name.
        with self.lock:
            self.asked.append(request)
            self._refuse(self.create, context)
        attempt = request.task_execution_metadata.task_execution_id.retry_attempt
        return agent_pb2.CreateTaskResponse(resource_meta=str(attempt).encode())

    def GetTask(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - gRPC finds it by name.
        with self.lock:
            script = self.scripts[int(request.resource_meta)]
            said = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(said, grpc.StatusCode):
            context.abort(said, "scripted")
        return answer(said)

    def DeleteTask(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - gRPC finds it by name.
        with self.lock:
            self.asked.append(request)
            self._refuse(self.delete, context)
        return agent_pb2.DeleteTaskResponse()

    def _refuse(self, script: list[Any], context: grpc.ServicerContext) -> None:
        if script and (status := script.pop(0)) is not None:
            context.abort(status, "scripted")


@pytest.fixture
def serve() -> Iterator[Any]:
    pool = futures.ThreadPoolExecutor(4)
    server = grpc.server(pool)

    def start(scripted: ScriptedConnector) -> Wire:
        agent_pb2_grpc.add_AsyncAgentServiceServicer_to_server(scripted, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        wires.append(Wire(f"127.0.0.1:{port}", service_config=None))
        return wires[0]

    wires: list[Wire] = []
    yield start
    for wire in wires:
        wire.close()
    server.stop(None).wait()
    pool.shutdown()


def prepared(
    serve: Any, scripted: ScriptedConnector, store: Path, task: Any = add, **inputs: Any
) -> Execution:
    return Propeller(serve(scripted), store, QUICK).prepare(task, inputs)


def begun(serve: Any, scripted: ScriptedConnector, store: Path, task: Any = add, **inputs: Any) -> Execution:
    return prepared(serve, scripted, store, task, **inputs).start()


def write_outputs(asked_for: Any, attempt: int, value: int) -> None:
    context = FlyteContextManager.current_context()
    literals = TypeEngine.dict_to_literal_map(context, {"o0": value}, {"o0": int}).to_flyte_idl()
    asked_for.output(attempt).mkdir(parents=True)
    (asked_for.output(attempt) / "outputs.pb").write_bytes(literals.SerializeToString())


def options(args: list[str]) -> dict[str, str]:
    return dict(zip(args[1::2], args[2::2], strict=False))


def test_what_arrives_is_rendered_as_on_the_wire(tmp_path: Path) -> None:
    request = build_request(add, {"a": 4}, tmp_path, execution="fb2").create(attempt=1)

    spec = request.template.k8s_pod.pod_spec
    (container,) = spec["containers"]
    said = options(list(container["args"]))
    data = f"file://{tmp_path}/metadata/propeller/project-development-fb2/n0/data"
    assert said["--inputs"] == f"{data}/inputs.pb"
    assert said["--output-prefix"] == request.output_prefix == f"{data}/1"
    assert said["--raw-output-data-prefix"] == f"file://{tmp_path}/ab/fb2-n0-1"
    assert said["--checkpoint-path"] == f"file://{tmp_path}/ab/fb2-n0-1/_flytecheckpoints"
    assert said["--prev-checkpoint"] == f"file://{tmp_path}/ab/fb2-n0-0/_flytecheckpoints"
    assert dict(spec["affinity"]) == {}
    assert (spec["restartPolicy"], spec["serviceAccountName"]) == ("Never", "default")
    assert {"name": "FLYTE_ATTEMPT_NUMBER", "value": "1"} in list(container["env"])
    assert request.inputs.literals["a"].scalar.primitive.integer == 4
    assert request.task_execution_metadata.labels["interruptible"] == "false"


def test_of_a_container_only_the_args_are_rendered(tmp_path: Path) -> None:
    request = build_request(nothing, {}, tmp_path).create(attempt=0)

    assert "{{" not in " ".join(request.template.container.args)
    assert options(list(request.template.container.args))["--prev-checkpoint"] == '""'
    assert not any("FLYTE" in each.key for each in request.template.container.env)
    assert request.template.WhichOneof("target") == "container"


def test_each_phase_is_shown_once_with_its_first_words(serve: Any, tmp_path: Path) -> None:
    script = ["QUEUED:x", "WAITING_FOR_RESOURCES:a", "WAITING_FOR_RESOURCES:b", "INITIALIZING:c", "RUNNING:d"]
    slow = [said for said in script for _ in range(5)]
    execution = prepared(serve, ScriptedConnector([*slow, "SUCCEEDED"]), tmp_path, a=1)
    write_outputs(execution.asked, 0, 2)

    outcome = execution.start().wait()

    assert outcome.last.shown == [
        Shown("QUEUED", "launched"),
        Shown("WAITING_FOR_RESOURCES", "a"),
        Shown("INITIALIZING", "c"),
        Shown("RUNNING"),
        Shown("SUCCEEDED"),
    ]
    assert (outcome.phase, outcome.outputs, outcome.violations) == ("SUCCEEDED", {"o0": 2}, ())


def test_a_retry_deletes_and_a_last_failure_does_not(serve: Any, tmp_path: Path) -> None:
    scripted = ScriptedConnector(["RETRYABLE_FAILED:first"], ["RETRYABLE_FAILED:second"])

    execution = begun(serve, scripted, tmp_path, a=1)
    outcome = execution.wait()

    assert execution.calls == ["CreateTask 0", "DeleteTask 0", "CreateTask 1"]
    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert outcome.error.endswith("failed to run the job: second")
    assert scripted.asked[2].output_prefix.endswith("/data/1")


def test_a_failure_is_the_end_and_nothing_is_deleted(serve: Any, tmp_path: Path) -> None:
    execution = begun(serve, ScriptedConnector(["FAILED:no"]), tmp_path, a=1)

    assert execution.wait().error == "failed to run the job: no"
    assert execution.calls == ["CreateTask 0"]


def test_an_error_of_create_is_an_attempt_spent(serve: Any, tmp_path: Path) -> None:
    scripted = ScriptedConnector([], ["FAILED:no"], create=[grpc.StatusCode.INVALID_ARGUMENT])

    execution = begun(serve, scripted, tmp_path, a=1)
    outcome = execution.wait()

    assert execution.calls == ["CreateTask 0", "CreateTask 1"]
    assert "code = INVALID_ARGUMENT desc = scripted" in outcome.attempts[0].message("RETRYABLE_FAILED")


@pytest.mark.parametrize("kind", ["RECOVERABLE", "NON_RECOVERABLE"])
def test_a_success_with_an_error_file_is_none(serve: Any, tmp_path: Path, kind: str) -> None:
    execution = prepared(serve, ScriptedConnector(["SUCCEEDED"], ["FAILED:no"]), tmp_path, a=1)
    error = errors_pb2.ContainerError(code="USER:E", message="broken", kind=kind)
    execution.asked.output(0).mkdir(parents=True)
    document = errors_pb2.ErrorDocument(error=error)
    (execution.asked.output(0) / "error.pb").write_bytes(document.SerializeToString())

    outcome = execution.start().wait()

    retried = kind == "RECOVERABLE"
    assert execution.calls == ["CreateTask 0", *(["DeleteTask 0", "CreateTask 1"] if retried else [])]
    assert outcome.error == ("failed to run the job: no" if retried else "broken")


def test_declared_outputs_that_are_missing_are_a_retry(serve: Any, tmp_path: Path) -> None:
    outcome = begun(serve, ScriptedConnector(["SUCCEEDED"], ["SUCCEEDED"]), tmp_path, a=1).wait()

    assert outcome.code == "RetriesExhausted|OutputsNotFound"


def test_of_a_task_without_outputs_nothing_is_read(serve: Any, tmp_path: Path) -> None:
    assert begun(serve, ScriptedConnector(["SUCCEEDED"]), tmp_path, nothing).wait().phase == "SUCCEEDED"


def test_an_abort_deletes_at_once(serve: Any, tmp_path: Path) -> None:
    execution = begun(serve, ScriptedConnector(["RUNNING"]), tmp_path, a=1)
    execution.wait_until("RUNNING")
    execution.abort()

    assert execution.wait().phase == "ABORTED"
    assert execution.calls == ["CreateTask 0", "DeleteTask 0"]


def test_a_delete_that_goes_on_failing_costs_the_workflow_its_life(serve: Any, tmp_path: Path) -> None:
    scripted = ScriptedConnector(["RUNNING"], delete=[grpc.StatusCode.UNAVAILABLE] * 20)
    execution = begun(serve, scripted, tmp_path, a=1)
    execution.wait_until("RUNNING")
    execution.abort()

    assert execution.wait().code == "Workflow abort failed"
    assert execution.calls.count("DeleteTask 0") == 11


def test_six_failures_without_an_answer_end_the_task(serve: Any, tmp_path: Path) -> None:
    outcome = begun(serve, ScriptedConnector([grpc.StatusCode.UNAVAILABLE]), tmp_path, a=1).wait()

    assert (outcome.code, outcome.error) == ("AutoRefreshCacheFailed", "UNAVAILABLE: scripted")


def test_six_failures_among_answers_freeze_it(serve: Any, tmp_path: Path) -> None:
    script = [said for _ in range(6) for said in ("RUNNING", grpc.StatusCode.UNAVAILABLE)]
    execution = begun(serve, ScriptedConnector([*script, "FAILED:never seen"]), tmp_path, a=1)

    with pytest.raises(AssertionError, match="asked no more after 6 failures"):
        execution.wait()


@pytest.mark.parametrize(
    ("script", "violation"),
    [
        (["RUNNING"] * 9 + ["INITIALIZING:again"] * 9, "INITIALIZING after something later: 'again'"),
        (["WAITING_FOR_RESOURCES"] * 9, "WAITING_FOR_RESOURCES without a word"),
        (["UNDEFINED:x"], "UNDEFINED says nothing to anybody"),
        ([grpc.StatusCode.INTERNAL, "RUNNING"], "GetTask raised INTERNAL: scripted"),
    ],
)
def test_what_a_connector_must_not_do_is_noted(
    serve: Any, tmp_path: Path, script: list[Any], violation: str
) -> None:
    outcome = begun(serve, ScriptedConnector([*script, "FAILED:end"], ["FAILED:end"]), tmp_path, a=1).wait()

    assert set(outcome.violations) == {violation}


def test_calls_that_overlap_are_no_violation(serve: Any, tmp_path: Path) -> None:
    """Answer the first request last, with the state at the time of the request."""
    late, first = threading.Event(), threading.Event()

    class Overlapping(ScriptedConnector):
        def GetTask(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - gRPC finds it by name.
            if not first.is_set():
                first.set()
                late.wait(5)
                return answer("WAITING_FOR_RESOURCES:late")
            return super().GetTask(request, context)

    execution = begun(serve, Overlapping(["RUNNING"] * 5 + ["RUNNING"]), tmp_path, a=1)
    execution.wait_until("RUNNING")
    late.set()
    while not any(said.message == "late" for said in execution.attempts[0].answers):
        time.sleep(0.01)
    execution.abort()

    assert execution.wait().violations == ()


def test_the_first_attempt_alone_can_be_taken_in_steps(serve: Any, tmp_path: Path) -> None:
    wire = serve(ScriptedConnector(["RUNNING"]))
    node = build_request(add, {"a": 1}, tmp_path)

    assert wire.create(node.create(0)) == wire.create(node.create(0)) == b"0"
    assert Attempt(0).phases == []
    assert isinstance(node.template, tasks_pb2.TaskTemplate)
    assert isinstance(node.inputs, literals_pb2.LiteralMap)
    shutil.rmtree(tmp_path)

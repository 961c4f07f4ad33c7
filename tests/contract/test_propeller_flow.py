"""Propeller's rules in the demo, against a scripted connector."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import grpc
import pytest
from builders import a_template
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from flyteidl.core.execution_pb2 import TaskExecution, TaskLog
from flyteidl.core.literals_pb2 import LiteralMap
from flyteidl.service import agent_pb2_grpc

from backend_plugin.cli.propeller_emulator import (
    NodeFailed,
    NodeSucceeded,
    PropellerEmulator,
    ReportedPhase,
    TaskNode,
)

OUTPUTS = {"outputs": {"variables": {"o0": {"type": {"simple": "INTEGER"}}}}}
ARGS = ["{{.input}}", "--output-prefix={{.outputPrefix}}", "--prev", "{{.prevCheckpointPrefix}}"]


@dataclass
class Scripted(agent_pb2_grpc.AsyncAgentServiceServicer):
    """Returns the scripted responses of each attempt in order, and then repeats the last one."""

    script: Sequence[Sequence[Any]]
    created: list[admin.CreateTaskRequest] = field(default_factory=list)
    deleted: list[bytes] = field(default_factory=list)
    refusal: str = ""
    calls: int = 0

    def CreateTask(self, request, context):  # noqa: N802 - the name of gRPC
        if self.refusal:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        self.created.append(request)
        self.calls = 0
        return admin.CreateTaskResponse(resource_meta=str(len(self.created) - 1).encode())

    def GetTask(self, request, context):  # noqa: N802 - the name of gRPC
        answers = self.script[int(request.resource_meta)]
        answer = answers[min(self.calls, len(answers) - 1)]
        self.calls += 1
        if answer is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        phase, message, *links = answer
        logs = [TaskLog(name="Logs", uri=link) for link in links]
        resource = admin.Resource(phase=TaskExecution.Phase.Value(phase), message=message, log_links=logs)
        return admin.GetTaskResponse(resource=resource)

    def DeleteTask(self, request, context):  # noqa: N802 - the name of gRPC
        self.deleted.append(request.resource_meta)
        return admin.DeleteTaskResponse()


def a_node(store, **fields):
    task = {"project": "project", "domain": "development", "name": "flows.train", "version": "v"}
    template = a_template({}, id=task, container={"args": ARGS}, **fields)
    return TaskNode(template=template, inputs=LiteralMap(), store=store, execution="f1")


def walked(scripted, node, reports=None):
    """Run the node, and return what it reports; close it after this number of reports."""
    server = grpc.server(ThreadPoolExecutor(2))
    agent_pb2_grpc.add_AsyncAgentServiceServicer_to_server(scripted, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        walk = PropellerEmulator(channel, (), resync=0.005).run_node(node)
        found = [*islice(walk, reports)]
        walk.close()
    server.stop(0).wait()
    return found


def test_phase_is_shown_once_with_its_first_message_and_links(tmp_path):
    answers = [
        *(("QUEUED", "never shown"), ("WAITING_FOR_RESOURCES", "no node")),
        *(("WAITING_FOR_RESOURCES", "still none"), ("INITIALIZING", "pulling", "http://logs")),
        *(("RUNNING", "3 of 4 ready", "http://logs"), ("WAITING_FOR_RESOURCES", "evicted")),
        ("SUCCEEDED", "done"),
    ]
    scripted, links = Scripted([answers]), {"logs": (("Logs", "http://logs"),)}
    assert walked(scripted, a_node(tmp_path)) == [
        ReportedPhase(attempt=0, phase="QUEUED", message=""),
        ReportedPhase(attempt=0, phase="WAITING_FOR_RESOURCES", message="no node"),
        ReportedPhase(attempt=0, phase="INITIALIZING", message="pulling", **links),
        ReportedPhase(attempt=0, phase="RUNNING", message="", **links),
        NodeSucceeded(),
    ]
    assert scripted.deleted == []


def test_connector_gets_the_same_request_as_from_propeller(tmp_path):
    scripted = Scripted([[("SUCCEEDED", "")]])
    walked(scripted, a_node(tmp_path))
    (request,) = scripted.created
    data = tmp_path / "metadata" / "propeller" / "project-development-f1" / "n0" / "data"
    inputs, outputs = (data / "inputs.pb").as_uri(), (data / "0").as_uri()
    expected = [inputs, f"--output-prefix={outputs}", "--prev", '""']
    assert (list(request.template.container.args), request.output_prefix) == (expected, outputs)
    assert (data / "inputs.pb").exists()
    metadata = request.task_execution_metadata
    assert (metadata.namespace, metadata.labels["execution-id"]) == ("project-development", "f1")
    assert metadata.task_execution_id.node_execution_id.node_id == "n0"


def test_permanent_failure_ends_the_node_without_deletion(tmp_path):
    scripted = Scripted([[("FAILED", "rank 1 failed")]])
    reports = walked(scripted, a_node(tmp_path, metadata={"retries": {"retries": 3}}))
    message = "failed to run the job: rank 1 failed"
    assert reports[-1] == NodeFailed(code="TaskFailedWithError", message=message)
    assert (len(scripted.created), scripted.deleted) == (1, [])


def test_retryable_failure_is_deleted_and_retried_until_the_limit(tmp_path):
    scripted = Scripted([[("RETRYABLE_FAILED", "node lost")]] * 2)
    reports = walked(scripted, a_node(tmp_path, metadata={"retries": {"retries": 1}}))
    assert [each.phase for each in reports[:-1]] == ["QUEUED", "RETRYABLE_FAILED", "QUEUED"]
    message = "[2/2] currentAttempt done. Last Error: USER::failed to run the job: node lost"
    assert reports[-1] == NodeFailed(code="RetriesExhausted|TaskFailedWithError", message=message)
    ids = [each.task_execution_metadata.task_execution_id for each in scripted.created]
    assert [each.retry_attempt for each in ids] == [0, 1]
    assert scripted.deleted == [b"0"]  # The last attempt is not deleted.


def test_failed_create_is_reported_and_deletes_no_task(tmp_path):
    scripted = Scripted([], refusal="no such thing")
    *_, last = walked(scripted, a_node(tmp_path))
    assert last.message.endswith("rpc error: code = INVALID_ARGUMENT desc = no such thing")
    assert scripted.deleted == []


def written(kind):
    error = ContainerError(code="USER:ValueError", message="no data", kind=kind)
    return ErrorDocument(error=error).SerializeToString()


OUTPUT, LASTING, PASSING = b"", written(ContainerError.NON_RECOVERABLE), written(ContainerError.RECOVERABLE)


def exhausted(code, message):
    last = f"[1/1] currentAttempt done. Last Error: USER::{message}"
    return NodeFailed(code=f"RetriesExhausted|{code}", message=last)


@pytest.mark.parametrize(
    ("files", "end"),
    [
        ({"outputs.pb": OUTPUT}, NodeSucceeded()),
        ({}, exhausted("OutputsNotFound", "outputs.pb was not found")),
        ({"error.pb": LASTING, "outputs.pb": OUTPUT}, NodeFailed(code="USER:ValueError", message="no data")),
        ({"error.pb": PASSING}, exhausted("USER:ValueError", "no data")),
    ],
)
def test_output_files_decide_the_result_of_a_task_with_outputs(tmp_path, files, end):
    node = a_node(tmp_path, interface=OUTPUTS)
    node.get_output_directory(0).mkdir(parents=True)
    for name, data in files.items():
        (node.get_output_directory(0) / name).write_bytes(data)
    assert walked(Scripted([[("SUCCEEDED", "")]]), node)[-1] == end


def test_five_failed_status_calls_are_tolerated(tmp_path):
    well = walked(Scripted([[None] * 5 + [("SUCCEEDED", "")]]), a_node(tmp_path))
    assert well[-1] == NodeSucceeded()
    badly = walked(Scripted([[None] * 6 + [("SUCCEEDED", "")]]), a_node(tmp_path))
    assert badly[-1] == NodeFailed(code="AutoRefreshCacheFailed", message="UNAVAILABLE: not now")


def test_closed_iteration_aborts_the_task(tmp_path):
    scripted = Scripted([[("RUNNING", "")]])
    assert [each.phase for each in walked(scripted, a_node(tmp_path), 2)] == ["QUEUED", "RUNNING"]
    assert scripted.deleted == [b"0"]

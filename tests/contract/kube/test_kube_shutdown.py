"""The end of a server process with pending deletions: those that are possible in time are executed."""

import json
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.service import agent_pb2_grpc
from kube_nobodys import build_name, names, ours, reference
from kube_server import Fault, KubeServer, serve
from kube_world import JOBS
from server_process import Serving

EXECUTIONS = [f"f{number}" for number in range(8)]
NAMES = [build_name(execution) for execution in EXECUTIONS]


@pytest.fixture
def server(server: KubeServer) -> KubeServer:
    for execution in EXECUTIONS:
        server.apply(JOBS, ours(execution))
    return server


def delete_all(serving: Serving) -> None:
    """Call DeleteTask for all jobs concurrently."""
    with grpc.insecure_channel(serving.endpoint) as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        requests = [admin.DeleteTaskRequest(resource_meta=reference(each)) for each in EXECUTIONS]
        for call in [stub.DeleteTask.future(each, timeout=60) for each in requests]:
            call.result()


def wait_for_end(serving: Serving) -> Sequence[dict[str, Any]]:
    """Wait for a successful end and return the log records."""
    assert serving.process.wait(90) == 0, serving.log.read_text()
    return [json.loads(line) for line in serving.log.read_text().splitlines()]


UNSIGNED = {"KFPYTORCH_ACCEPT_UNSIGNED": "true"}


def busy(server: KubeServer) -> None:
    """Let all requests for jobs fail with 429."""
    fault = partial(Fault, path="/pytorchjobs/", times=10**6, code=429, headers={"Retry-After": "1"})
    server.faults += [fault("GET"), fault("DELETE")]


def given_up(records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the level and job of each record about an abandoned deletion."""
    word = "the operation is not complete, and no other server repeats it: delete_job"
    return sorted((each["level"], each["job"]) for each in records if each["message"] == word)


def test_acknowledged_deletions_are_sent_during_shutdown_despite_a_busy_api_server(server, tmp_path):
    with serve(server, tmp_path, **UNSIGNED) as serving:
        busy(server)
        delete_all(serving)
        assert names(server) == NAMES
        serving.process.send_signal(signal.SIGTERM)
        time.sleep(3.5)  # Longer than the shortest time for background operations.
        server.faults.clear()
        records = wait_for_end(serving)
    assert names(server) == []
    assert given_up(records) == []


def test_log_contains_the_jobs_that_shutdown_did_not_delete(server: KubeServer, tmp_path: Path) -> None:
    with serve(server, tmp_path, **UNSIGNED, KFPYTORCH_DRAIN_TIMEOUT="1s") as serving:
        busy(server)
        delete_all(serving)
        begun = time.monotonic()
        serving.process.send_signal(signal.SIGTERM)
        records = wait_for_end(serving)
        # Background operations get at least 3 s, even with a shorter drain. By default they get 20 s.
        assert 2.9 < time.monotonic() - begun < 18
    assert names(server) == NAMES
    assert given_up(records) == [("WARNING", name) for name in NAMES]
    (counted,) = [each for each in records if each["message"].startswith("the server stops before")]
    # The verdicts of these old jobs may not be stored yet, because that also reads the jobs.
    assert "8 delete_job" in counted["message"]

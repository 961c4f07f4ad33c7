"""The end of a server process with pending deletions: those that are possible in time are executed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.service import agent_pb2_grpc
from kube_nobodys import names, ours, prefix
from kube_server import Fault, KubeServer, kubeconfig, served
from kube_world import JOBS, apply

from backend_plugin.core import job_ref
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import JobRef

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")
EXECUTIONS = [f"f{number}" for number in range(8)]
NAMES = [f"{execution}-n0-0-0123456789ab" for execution in EXECUTIONS]


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with served() as server:
        for execution in EXECUTIONS:
            server.do(apply(JOBS, ours(execution)))
        yield server


@dataclass
class ServerProcess:
    """A server that is ready."""

    process: "subprocess.Popen[str]"
    endpoint: str

    def delete(self) -> None:
        """Call DeleteTask for all jobs concurrently."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
            calls = [
                stub.DeleteTask.future(_build_delete_request(execution), timeout=10)
                for execution in EXECUTIONS
            ]
            for call in calls:
                call.result()

    def stop(self) -> Sequence[dict[str, Any]]:
        """Wait for a successful end and return the log records."""
        _, said = self.process.communicate(timeout=40)
        assert self.process.returncode == 0, said
        return [json.loads(line) for line in said.splitlines()]


UNSIGNED = {"KFPYTORCH_ACCEPT_UNSIGNED": "true"}


def _build_delete_request(execution: str) -> admin.DeleteTaskRequest:
    name = f"{execution}-n0-0-0123456789ab"
    ref = JobRef(dialect=DEFAULT.name, namespace="ns", name=name, output_prefix=prefix(execution))
    return admin.DeleteTaskRequest(resource_meta=job_ref.encode(ref))


@contextmanager
def serve(server: KubeServer, folder: Path, **environment: str) -> Iterator[ServerProcess]:
    state = folder / "state"
    state.mkdir()
    command = [KFPYTORCH, "serve", "--cluster", "kubernetes", "--host", "127.0.0.1", "--port", "0"]
    command += ["--kubeconfig", kubeconfig(server, folder / "kubeconfig"), "--state-dir", state]
    said = [*map(str, command), "--log-format", "json"]
    known = {**os.environ, **UNSIGNED, **environment}
    with subprocess.Popen(said, stderr=subprocess.PIPE, text=True, env=known) as it:
        try:
            assert it.stderr is not None
            assert any(json.loads(line)["message"] == "ready" for line in it.stderr)
            yield ServerProcess(it, json.loads((state / "server.json").read_text())["endpoint"])
        finally:
            it.kill()


def busy(server: KubeServer) -> None:
    """Let all requests for jobs fail with 429."""
    for method in ("GET", "DELETE"):
        server.faults.append(
            Fault(method=method, path="/pytorchjobs/", times=10**6, code=429, headers={"Retry-After": "1"})
        )


def given_up(said: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the level and job of each record about an abandoned deletion."""
    word = "the operation is not complete, and no other server repeats it: delete_job"
    return sorted((each["level"], each["job"]) for each in said if each["message"] == word)


def test_acknowledged_deletions_are_sent_during_shutdown_despite_a_busy_api_server(
    server: KubeServer, tmp_path: Path
) -> None:
    with serve(server, tmp_path) as serving:
        busy(server)
        serving.delete()
        assert names(server) == NAMES
        serving.process.send_signal(signal.SIGTERM)
        time.sleep(3.5)  # Longer than the shortest time for background operations.
        server.faults.clear()
        said = serving.stop()
    assert names(server) == []
    assert given_up(said) == []


def test_log_contains_the_jobs_that_shutdown_did_not_delete(server: KubeServer, tmp_path: Path) -> None:
    with serve(server, tmp_path, KFPYTORCH_DRAIN_TIMEOUT="1s") as serving:
        busy(server)
        serving.delete()
        begun = time.monotonic()
        serving.process.send_signal(signal.SIGTERM)
        said = serving.stop()
        # Background operations get at least 3 s, even with a shorter drain.
        assert 2.9 < time.monotonic() - begun < 10
    assert names(server) == NAMES
    assert given_up(said) == [("WARNING", name) for name in NAMES]
    (counted,) = (each["message"] for each in said if each["message"].startswith("the server stops before"))
    # The verdicts of these old jobs may not be stored yet, because that also reads the jobs.
    assert "8 delete_job" in counted


def test_second_signal_ends_the_server_despite_pending_deletions(server: KubeServer, tmp_path: Path) -> None:
    with serve(server, tmp_path) as serving:
        busy(server)
        serving.delete()
        serving.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            serving.process.wait(1)
        begun = time.monotonic()
        serving.process.send_signal(signal.SIGTERM)
        said = serving.stop()
        assert time.monotonic() - begun < 3
    assert given_up(said) == [("WARNING", name) for name in NAMES]

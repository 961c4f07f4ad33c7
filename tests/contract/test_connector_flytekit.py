"""Our connector in flytekit's own server, as a stock connector image starts it."""

import asyncio
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service.agent_pb2_grpc import AgentMetadataServiceStub, AsyncAgentServiceStub
from server_process import ENVIRON
from serving import build_creation, wait_until

SERVER = Path(__file__).with_name("flytekit_server.py")
MODULE = "backend_plugin.flytekit_connector"
CATEGORY = admin.TaskCategory(name="pytorch", version=1)


def stop(process):
    """Interrupt flytekit's server, again if it continues.

    flytekit's handler of SIGINT raises SystemExit at any point of the main thread. Python ignores an
    exception that is raised in a destructor or in a callback from C.
    """
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
            return
    process.kill()
    raise AssertionError("the server did not stop within 60 s")


@contextmanager
def hosted(state):
    command = [sys.executable, str(SERVER), MODULE]
    settings = {"KFPYTORCH_ALLOW_UNAUTHENTICATED": "true", "KFPYTORCH_PORT": "0"}
    env = {**ENVIRON, "KFPYTORCH_STATE_DIR": str(state), **settings}
    with (
        state.with_suffix(".log").open("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env) as process,
    ):
        try:
            port = process.stdout.readline().strip()
            assert port, state.with_suffix(".log").read_text()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            stop(process)


def phase(stub, reference):
    request = admin.GetTaskRequest(resource_meta=reference, task_category=CATEGORY)
    return TaskExecution.Phase.Name(stub.GetTask(request, timeout=60).resource.phase)


def wait_for_phase(stub, reference, wanted):
    asyncio.run(wait_until(lambda: phase(stub, reference) == wanted))


@pytest.mark.timeout(180)
def test_stock_connector_runs_jobs_and_reports_their_phases(tmp_path):
    mark = tmp_path / "ran"
    container = {"image": "any", "command": ["/bin/sh", "-c", f"echo >> {mark}; exec sleep $SECONDS_TO_RUN"]}

    def create(stub, execution, seconds):
        env = [{"key": "SECONDS_TO_RUN", "value": str(seconds)}]
        prefix = f"file://{tmp_path}/{execution}/n0/data/0"
        request = build_creation(0, execution, output_prefix=prefix, container={**container, "env": env})
        return bytes(stub.CreateTask(request, timeout=60).resource_meta)

    with hosted(tmp_path / "state") as channel:
        agents = AgentMetadataServiceStub(channel).ListAgents(admin.ListAgentsRequest(), timeout=60).agents
        (ours,) = [agent for agent in agents if agent.name == "kfpytorch"]
        assert [each.version for each in ours.supported_task_categories] == [0, 1]
        stub = AsyncAgentServiceStub(channel)
        done, endless = create(stub, "f1", 0), create(stub, "f2", 600)
        wait_for_phase(stub, done, "SUCCEEDED")
        wait_for_phase(stub, endless, "RUNNING")
        assert len(mark.read_text().splitlines()) == 4
        request = admin.DeleteTaskRequest(resource_meta=endless, task_category=CATEGORY)
        stub.DeleteTask(request, timeout=60)
        wait_for_phase(stub, endless, "RETRYABLE_FAILED")
        refused = stub.CreateTask(build_creation(output_prefix="http://x/y"), timeout=60)
        assert phase(stub, refused.resource_meta) == "FAILED"
    assert "port has no effect here: flytekit's server has its own" in (tmp_path / "state.log").read_text()


def test_connector_on_all_addresses_is_rejected_without_the_explicit_setting(tmp_path):
    env = {**ENVIRON, "KFPYTORCH_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", f"import {MODULE}"], check=False, capture_output=True, text=True, env=env
    )
    assert done.returncode == 1
    output = " ".join(done.stderr.split())  # flytekit wraps its output.
    assert "ConnectorUnavailable: pyflyte serve connector listens on all addresses" in output
    assert "use kfpytorch serve, or set KFPYTORCH_ALLOW_UNAUTHENTICATED=true" in output

"""``kfpytorch serve --cluster kubernetes`` as a process: its access control, its scans and its end."""

import asyncio
import json
import signal
import time
from functools import partial

import grpc
from click.testing import CliRunner
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service import agent_pb2_grpc
from kube_server import Fault, serve
from kube_world import JOBS, MARK, NAME, build_name, job, metadata, names, ours, reference
from serving import NAMESPACE, build_creation, wait_until

from backend_plugin.cli.commands import kfpytorch


def test_flyte_calls_need_no_token_and_commands_need_one(server, tmp_path):
    server.apply(JOBS, job())

    def list_jobs(server, token=None):
        known = {"HOME": str(tmp_path), "KFPYTORCH_SERVER": server, "KFPYTORCH_TOKEN": token}
        return CliRunner().invoke(kfpytorch, ["jobs", "-o", "json"], env=known)

    with serve(server, tmp_path) as serving:
        with grpc.insecure_channel(serving.endpoint) as channel:
            stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
            assert stub.ListAgents(admin.ListAgentsRequest(), timeout=60).agents
        assert list_jobs(serving.endpoint).exit_code != 0
        assert list_jobs(serving.endpoint, "wrong").exit_code != 0
        for found in (list_jobs(serving.endpoint, serving.token), list_jobs(str(tmp_path / "state"))):
            assert found.exit_code == 0, found.stderr
            assert NAME in found.stdout


def test_task_runs_only_in_the_namespace_of_its_project_and_domain_by_default(server, tmp_path):
    refused = ("kube-system", "flyte", "flytesnacks-production", "default")
    phases = []
    with serve(server, tmp_path) as served, grpc.insecure_channel(served.endpoint) as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        for namespace in (*refused, NAMESPACE):
            server.do(lambda objects, name=namespace: objects.namespaces.update({name: "Active"}))
            meta = stub.CreateTask(build_creation(namespace=namespace), timeout=60).resource_meta
            resource = stub.GetTask(admin.GetTaskRequest(resource_meta=meta), timeout=60).resource
            phases.append(TaskExecution.Phase.Name(resource.phase))
    assert [each == "FAILED" for each in phases] == [True, True, True, True, False]
    assert len(names(server)) == 1


def test_requested_job_is_kept_and_orphan_is_deleted(server, tmp_path):
    server.groups["flyte.lyft.com"] = {"flyteworkflows": "v1alpha1"}
    server.apply(JOBS, ours("asked"))
    server.apply(JOBS, ours("gone"))
    name = build_name("asked")
    metrics = {"KFPYTORCH_METRICS_HOST": "127.0.0.1", "KFPYTORCH_METRICS_PORT": "0"}
    scan = {"KFPYTORCH_ACCEPT_UNSIGNED": "true", "KFPYTORCH_KUBERNETES_ORPHAN_SCAN_INTERVAL": "800ms"}
    with (
        serve(server, tmp_path, **metrics, **scan) as serving,
        grpc.insecure_channel(serving.endpoint) as channel,
    ):
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        request = admin.GetTaskRequest(resource_meta=reference("asked"))

        def is_marked():
            stub.GetTask(request, timeout=60)
            return names(server) == [name] and MARK in metadata(server, name)["annotations"]

        asyncio.run(wait_until(is_marked))
        assert metadata(server, name)["annotations"][MARK] == "other-cluster"
        lines = serving.metrics.text().splitlines()
    assert 'kfpytorch_watches{kind="pods",state="synced"} 1.0' in lines
    assert 'kfpytorch_orphans_total{result="deleted"} 1.0' in lines
    # A slow machine may scan twice before the annotation is written or received.
    for result in ("other_cluster", "suspected"):
        assert any(f'kfpytorch_orphans_total{{result="{result}"}}' in line for line in lines)


# ---- the end of a server with pending deletions


EXECUTIONS = [f"f{number}" for number in range(8)]
NAMES = [build_name(execution) for execution in EXECUTIONS]


def delete_all(server, serving):
    """Create the jobs, and call DeleteTask for all of them concurrently while the API server is busy."""
    for execution in EXECUTIONS:
        server.apply(JOBS, ours(execution))
    fault = partial(Fault, path="/pytorchjobs/", times=10**6, code=429, headers={"Retry-After": "1"})
    server.faults += [fault("GET"), fault("DELETE")]
    with grpc.insecure_channel(serving.endpoint) as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        requests = [admin.DeleteTaskRequest(resource_meta=reference(each)) for each in EXECUTIONS]
        for call in [stub.DeleteTask.future(each, timeout=60) for each in requests]:
            call.result()


def wait_for_end(serving):
    assert serving.process.wait(90) == 0, serving.log.read_text()
    return [json.loads(line) for line in serving.log.read_text().splitlines()]


UNSIGNED = {"KFPYTORCH_ACCEPT_UNSIGNED": "true"}


def given_up(records):
    """Return the level and job of each record about an abandoned deletion."""
    word = "the operation is not complete, and no other server repeats it: delete_job"
    return sorted((each["level"], each["job"]) for each in records if each["message"] == word)


def test_acknowledged_deletions_are_sent_during_shutdown_despite_a_busy_api_server(server, tmp_path):
    with serve(server, tmp_path, **UNSIGNED) as serving:
        delete_all(server, serving)
        assert names(server) == NAMES
        serving.process.send_signal(signal.SIGTERM)
        time.sleep(3.5)  # Longer than the shortest time for background operations.
        server.faults.clear()
        records = wait_for_end(serving)
    assert (names(server), given_up(records)) == ([], [])


def test_log_contains_the_jobs_that_shutdown_did_not_delete(server, tmp_path):
    with serve(server, tmp_path, **UNSIGNED, KFPYTORCH_DRAIN_TIMEOUT="1s") as serving:
        delete_all(server, serving)
        begun = time.monotonic()
        serving.process.send_signal(signal.SIGTERM)
        records = wait_for_end(serving)
        # Background operations get at least 3 s, even with a shorter drain. By default they get 20 s.
        assert 2.9 < time.monotonic() - begun < 18
    assert (names(server), given_up(records)) == (NAMES, [("WARNING", name) for name in NAMES])
    (counted,) = [each for each in records if each["message"].startswith("the server stops before")]
    # The verdicts of these old jobs may not be stored yet, because that also reads the jobs.
    assert "8 delete_job" in counted["message"]

"""Authentication, permissions and commands of ``kfpytorch serve --cluster kubernetes`` as a process."""

import time

import grpc
from click.testing import CliRunner, Result
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service import agent_pb2_grpc
from kube_nobodys import MARK, build_name, metadata, names, ours, reference
from kube_server import serve
from kube_world import JOBS, NAME, job
from serving import NAMESPACE, build_creation

from backend_plugin.cli.commands import kfpytorch


def test_flyte_calls_need_no_token_and_commands_need_one(server, tmp_path):
    server.apply(JOBS, job())

    def list_jobs(server: str, token: str | None = None) -> Result:
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
        for _ in range(600):
            stub.GetTask(request, timeout=60)
            if names(server) == [name] and MARK in metadata(server, name)["annotations"]:
                break
            time.sleep(0.05)
        assert names(server) == [name]
        assert metadata(server, name)["annotations"][MARK] == "other-cluster"
        lines = serving.metrics.text().splitlines()
    assert 'kfpytorch_watches{kind="pods",state="synced"} 1.0' in lines
    assert 'kfpytorch_orphans_total{result="deleted"} 1.0' in lines
    # A slow machine may scan twice before the annotation is written or received.
    for result in ("other_cluster", "suspected"):
        assert any(f'kfpytorch_orphans_total{{result="{result}"}}' in line for line in lines)

"""Permissions of a caller without credentials, with the default settings of ``kfpytorch serve``."""

import grpc
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service import agent_pb2_grpc
from google.protobuf.json_format import ParseDict
from kube_nobodys import names
from kube_served import serve

REFUSED = ("kube-system", "flyte", "flytesnacks-production", "default")


@pytest.fixture
def server(server):
    for namespace in (*REFUSED, "flytesnacks-development"):
        server.do(lambda objects, name=namespace: objects.namespaces.update({name: "Active"}))
    return server


def request(namespace):
    identity = {"project": "flytesnacks", "domain": "development", "name": "f1"}
    return ParseDict(
        {
            "template": {
                "type": "pytorch",
                "taskTypeVersion": 1,
                "container": {"image": "train:1", "args": ["pyflyte-execute"]},
                "custom": {"workerReplicas": {"replicas": 1}},
            },
            "outputPrefix": "s3://bucket/f1/n0/data/0",
            "taskExecutionMetadata": {
                "taskExecutionId": {"nodeExecutionId": {"nodeId": "n0", "executionId": identity}},
                "namespace": namespace,
            },
        },
        admin.CreateTaskRequest(),
    )


def test_task_runs_only_in_the_namespace_of_its_project_and_domain_by_default(server, tmp_path):
    phases = []
    with serve(server, tmp_path) as serving, grpc.insecure_channel(serving.endpoint) as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        for namespace in [*REFUSED, "flytesnacks-development"]:
            meta = stub.CreateTask(request(namespace), timeout=60).resource_meta
            resource = stub.GetTask(admin.GetTaskRequest(resource_meta=meta), timeout=60).resource
            phases.append(TaskExecution.Phase.Name(resource.phase))
    assert phases[:4] == ["FAILED"] * 4
    assert phases[4] != "FAILED"
    assert len(names(server)) == 1

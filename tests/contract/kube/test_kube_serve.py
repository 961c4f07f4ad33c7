"""Authentication and commands of ``kfpytorch serve --cluster kubernetes`` as a process."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import grpc
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.service import agent_pb2_grpc
from kube_nobodys import MARK, metadata, names, ours, prefix
from kube_server import KubeServer, kubeconfig, served
from kube_world import JOBS, NAME, apply, job

from backend_plugin.core import job_ref
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import JobRef

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")


@pytest.fixture
def server():
    with served() as server:
        yield server


def serve(
    server: KubeServer, folder: Path, **environment: str
) -> tuple["subprocess.Popen[str]", str, list[str]]:
    """Start a server and return the process, its endpoint and the flags for commands of other users."""
    config = kubeconfig(server, folder / "kubeconfig")
    command = [KFPYTORCH, "serve", "--cluster", "kubernetes", "--kubeconfig", config]
    command += ["--host", "127.0.0.1", "--port", "0", "--state-dir", folder / "state", "--log-format", "json"]
    (folder / "state").mkdir()
    process = subprocess.Popen(
        [str(word) for word in command], stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    assert process.stderr is not None
    for line in process.stderr:
        if json.loads(line)["message"] == "ready":
            break
    here = json.loads((folder / "state" / "server.json").read_text())
    return process, here["endpoint"], [str(folder / "state"), here["token"]]


def test_flyte_calls_need_no_token_and_commands_need_one(server, tmp_path):
    server.do(apply(JOBS, job()))
    process, endpoint, (state, token) = serve(server, tmp_path)
    try:
        with grpc.insecure_channel(endpoint) as channel:
            stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
            assert stub.ListAgents(admin.ListAgentsRequest(), timeout=10).agents

        def jobs(server: str, **environment: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [KFPYTORCH, "jobs", "-o", "json"],
                env={"PATH": "", "HOME": str(tmp_path), "KFPYTORCH_SERVER": server, **environment},
                capture_output=True,
                text=True,
                check=False,
            )

        assert jobs(endpoint).returncode != 0
        assert jobs(endpoint, KFPYTORCH_TOKEN="wrong").returncode != 0
        for found in (jobs(endpoint, KFPYTORCH_TOKEN=token), jobs(state)):
            assert found.returncode == 0, found.stderr
            assert NAME in found.stdout
    finally:
        process.kill()
        process.communicate()


def test_requested_job_is_kept_and_orphan_is_deleted(server, tmp_path):
    server.groups["flyte.lyft.com"] = {"flyteworkflows": "v1alpha1"}
    server.do(apply(JOBS, ours("asked")))
    server.do(apply(JOBS, ours("gone")))
    name = "asked-n0-0-0123456789ab"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process, endpoint, _ = serve(
        server,
        tmp_path,
        KFPYTORCH_ACCEPT_UNSIGNED="true",
        KFPYTORCH_KUBERNETES_ORPHAN_SCAN_INTERVAL="800ms",
        KFPYTORCH_METRICS_HOST="127.0.0.1",
        KFPYTORCH_METRICS_PORT=str(port),
    )
    try:
        with grpc.insecure_channel(endpoint) as channel:
            stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
            ref = JobRef(dialect=DEFAULT.name, namespace="ns", name=name, output_prefix=prefix("asked"))
            request = admin.GetTaskRequest(resource_meta=job_ref.encode(ref))
            for _ in range(600):
                stub.GetTask(request, timeout=10)
                if names(server) == [name] and MARK in metadata(server, name)["annotations"]:
                    break
                time.sleep(0.05)
        assert names(server) == [name]
        assert metadata(server, name)["annotations"][MARK] == "other-cluster"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as shown:
            said = shown.read().decode().splitlines()
        assert 'kfpytorch_watches{kind="pods",state="synced"} 1.0' in said
        assert 'kfpytorch_orphans_total{result="deleted"} 1.0' in said
        # A slow machine may scan twice before the annotation is written or received.
        for result in ("other_cluster", "suspected"):
            assert any(f'kfpytorch_orphans_total{{result="{result}"}}' in line for line in said)
    finally:
        process.kill()
        process.communicate()

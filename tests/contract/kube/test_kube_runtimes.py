"""Runtimes and foreign jobs of a cluster, through a server and the clients, with a fake API server."""

import asyncio
import json
import re
from contextlib import contextmanager
from datetime import timedelta

import pytest
from click.testing import CliRunner
from kube_server import serve, served
from kube_world import IDENTITY, JOBS, NAME, PODS, ended_pod, job
from tiny_service import wait_until

from backend_plugin import async_client, client
from backend_plugin.cli.commands import kfpytorch

GROUP = "trainer.kubeflow.org"
PLURALS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
TRAINJOBS, RUNTIMES, CLUSTER_RUNTIMES = ((GROUP, plural) for plural in PLURALS)
LABELS = {"trainer.kubeflow.org/framework": "torch"}
REPORT = [
    *("noise", 'kfpytorch: ["python", "3.11.9 (main)"]', 'kfpytorch: ["package", "torch", "2.8.0"]'),
    'kfpytorch: ["package", "attrs", "25.1"]',
]


def runtime(name, namespace="", image="image:1", **labels):
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": image}]}}},
    }
    node = {"name": "node", "template": template}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {**LABELS, **labels}},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [node]}}},
    }


def trainjob(name, namespace="ns", **status):
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
        "status": status,
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server, and a cluster in which other clients use Trainer, too."""
    with served() as server:
        server.groups[GROUP] = dict.fromkeys(PLURALS, "v1alpha1")
        server.do(lambda objects: objects.namespaces.update({"other": "Active"}))
        server.apply(JOBS, job())
        server.apply(JOBS, {**job("old"), "metadata": {"name": "old", "namespace": "ns"}})
        server.apply(TRAINJOBS, trainjob("sdk", jobsStatus=[{"name": "node", "ready": 1}]))
        ended = [{"type": "Complete", "status": "True", "message": "done"}]
        server.apply(TRAINJOBS, trainjob("over", "other", conditions=ended))
        server.apply(CLUSTER_RUNTIMES, runtime("torch-distributed"))
        server.apply(RUNTIMES, runtime("torch-distributed", "other", "image:2"))
        server.apply(RUNTIMES, runtime("team", "ns"))
        own = runtime(NAME, "ns", **{IDENTITY: "x"})
        own["metadata"]["ownerReferences"] = [{"kind": "TrainJob", "name": NAME, "uid": "u"}]
        server.apply(RUNTIMES, own)
        with serve(server, tmp_path_factory.mktemp("server")) as serving:
            yield server, serving


@pytest.fixture
def kube(world, monkeypatch):
    server, serving = world
    monkeypatch.setenv("KFPYTORCH_SERVER", serving.endpoint)
    monkeypatch.setenv("KFPYTORCH_TOKEN", serving.token)
    return server


def run(*arguments):
    return CliRunner().invoke(kfpytorch, arguments)


def list_requests(server):
    return sorted(each for each in server.requests if re.fullmatch(r"GET .*/(pytorchjobs|trainjobs)", each))


def test_foreign_jobs_are_listed_on_demand_and_marked(kube):
    kube.requests.clear()
    assert [each.name for each in client.list_jobs()] == [NAME]
    assert list_requests(kube) == []
    found = {each.name: each for each in client.list_jobs(foreign=True)}
    assert list_requests(kube) == [
        "GET /apis/kubeflow.org/v1/pytorchjobs",
        f"GET /apis/{GROUP}/v1alpha1/trainjobs",
    ]
    assert not found.pop(NAME).foreign
    assert {name: (one.kind, one.foreign, one.verdict.phase, one.total) for name, one in found.items()} == {
        "old": ("PyTorchJob", True, "INITIALIZING", 1),
        "sdk": ("TrainJob", True, "RUNNING", 2),
        "over": ("TrainJob", True, "SUCCEEDED", 2),
    }
    active = client.list_jobs(foreign=True, active_only=True, namespace="ns")
    assert {each.name for each in active} == {NAME, "old", "sdk"}


@pytest.mark.parametrize("verb", ["cancel", "describe", "logs", "wait"])
def test_foreign_job_is_read_only(kube, verb):
    before = kube.list_objects("trainjobs")
    refused = run(verb, "ns/sdk")
    assert refused.exit_code == 1
    assert "kubectl delete trainjobs.trainer.kubeflow.org sdk --namespace ns" in refused.stderr
    assert kube.list_objects("trainjobs") == before
    with pytest.raises(client.NotFound):
        client.cancel_job("other/sdk")


def test_runtimes_are_listed_without_those_of_single_jobs_and_found_by_name(kube):
    assert [(each.namespace, each.name, each.kind) for each in client.list_runtimes()] == [
        ("ns", "team", "TrainingRuntime"),
        ("other", "torch-distributed", "TrainingRuntime"),
        ("", "torch-distributed", "ClusterTrainingRuntime"),
    ]
    found = client.list_runtimes(namespace="ns", job_runtimes=True)
    assert [(each.name, each.job) for each in found][:2] == [(NAME, NAME), ("team", "")]
    assert client.get_runtime("torch-distributed", namespace="other").image == "image:2"
    with pytest.raises(client.NotFound, match="the existing runtimes are"):
        client.get_runtime("none")


def test_runtimes_command_prints_the_table(kube):
    result = run("runtimes", "list", "--namespace", "ns")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["team", "TrainingRuntime", "ns", "torch", "2", "-", "-", "image:1"],
        ["torch-distributed", "ClusterTrainingRuntime", "-", "torch", "2", "-", "-", "image:1"],
    ]
    assert NAME in run("runtimes", "list", "--all").stdout
    for wrong in (("runtimes", "list", "team"), ("runtimes", "packages")):
        assert run(*wrong).exit_code == 2


def test_missing_permission_error_contains_the_rule(kube):
    kube.forbidden.add("list clustertrainingruntimes")
    try:
        with pytest.raises(client.RequestFailed) as caught:
            client.list_runtimes()
    finally:
        kube.forbidden.clear()
    rule = "{apiGroups: [trainer.kubeflow.org], resources: [clustertrainingruntimes], verbs: [list]}"
    assert f"add to the ClusterRole: {rule}" in str(caught.value)


@contextmanager
def running_pods(server, *lines, exit_code=0):
    """End each new job with a pod that has written these lines; yield the jobs."""
    manifests = []

    def end(key, manifest):
        manifests.append(manifest)
        (patch,) = manifest["spec"]["runtimePatches"]
        (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        labels = {
            **node["template"]["spec"]["template"]["metadata"]["labels"],
            "jobset.sigs.k8s.io/jobset-name": key[3],
            "jobset.sigs.k8s.io/replicatedjob-name": node["name"],
            "batch.kubernetes.io/job-completion-index": "0",
        }
        pod = f"{key[3]}-node-0-0-abcde"
        server.logs[pod] = [[f"2026-01-01T00:00:00.{number:09}Z {line}" for number, line in enumerate(lines)]]
        ended = ended_pod(pod, labels, container="node", exit_code=exit_code)
        server.objects.apply((*PODS, key[2], pod), ended)
        kind = "Failed" if exit_code else "Complete"
        condition = {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
        server.objects.apply(key, {**manifest, "status": {"conditions": [condition]}})

    server.objects.on_create = end
    try:
        yield manifests
    finally:
        server.objects.on_create = lambda *_: None


def list_package_jobs(server):
    return [key[3] for key in server.objects.now if key[3].startswith("packages-") and key[1] == "trainjobs"]


def test_runtime_packages_are_those_that_its_job_prints(kube):
    with running_pods(kube, *REPORT, 'kfpytorch: ["gpus", "H100"]', 'kfpytorch: ["end"]') as jobs:
        found = client.get_runtime_packages("torch-distributed", namespace="ns")
        result = run("runtimes", "packages", "torch-distributed", "-n", "ns", "-o", "json")
    assert found.python == "3.11.9 (main)"
    assert [(each.name, each.version) for each in found.packages] == [("attrs", "25.1"), ("torch", "2.8.0")]
    assert (found.gpus, found.runtime.kind) == ("H100", "ClusterTrainingRuntime")
    printed = json.loads(result.stdout)
    assert sorted(printed) == ["gpus", "packages", "python", "runtime"]
    assert printed["packages"][0] == {"name": "attrs", "version": "25.1"}
    assert {each["spec"]["runtimeRef"]["name"] for each in jobs} == {"torch-distributed"}
    assert len(jobs) == 2
    assert list_package_jobs(kube) == []


@pytest.mark.parametrize(
    ("lines", "exit_code", "message"), [(REPORT, 0, "complete list"), ((), 127, "exit code 127")]
)
def test_failed_or_incomplete_package_job_is_reported_and_deleted(kube, lines, exit_code, message):
    with running_pods(kube, *lines, exit_code=exit_code), pytest.raises(client.RequestFailed, match=message):
        client.get_runtime_packages("team")
    assert list_package_jobs(kube) == []


def test_unfinished_package_job_is_deleted_after_the_timeout(kube):
    with pytest.raises(client.RequestFailed, match="has not ended within 1 s"):
        client.get_runtime_packages("team", timeout=timedelta(seconds=1))
    assert list_package_jobs(kube) == []


async def test_package_job_is_deleted_if_the_client_cancels(kube):
    call = asyncio.create_task(async_client.get_runtime_packages("team"))
    await wait_until(lambda: list_package_jobs(kube) != [])
    call.cancel()
    await asyncio.wait([call])
    await wait_until(lambda: list_package_jobs(kube) == [])


def test_cluster_runtime_requires_a_namespace_for_its_package_job(kube):
    kube.apply(CLUSTER_RUNTIMES, runtime("shared"))
    with pytest.raises(client.RequestFailed, match="--namespace NAME"):
        client.get_runtime_packages("shared")
    with pytest.raises(client.RequestFailed, match="does not serve namespace 'kube-system'"):
        client.get_runtime_packages("shared", namespace="kube-system")


async def test_asyncio_client_has_the_same_results(kube):
    # The server may still list the package job of an earlier test, which has just been deleted.
    jobs = [each for each in await async_client.list_jobs(foreign=True) if each.kind == "PyTorchJob"]
    assert jobs == [each for each in client.list_jobs(foreign=True) if each.kind == "PyTorchJob"] != []
    assert await async_client.get_job(NAME) == client.get_job(NAME)
    assert await async_client.list_runtimes() == client.list_runtimes()
    assert await async_client.get_runtime("team") == client.get_runtime("team")

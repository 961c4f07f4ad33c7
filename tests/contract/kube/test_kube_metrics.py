"""The metrics page of server processes, as Prometheus reads it."""

import asyncio
import platform
import re
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import serving
from flyteidl.service import agent_pb2_grpc
from kube_server import Fault, serve, served
from kube_world import JOBS, NAME, PODS, build_replica, job, pod
from server_metrics import MetricsPage, get_exported_name, list_metrics
from serving import NAMESPACE, build_creation

from backend_plugin.core import job_ref
from backend_plugin.core.judging.verdict_annotation import ANNOTATION

ROOT = Path(__file__).parents[3]
SINCE = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
MESSAGE = "PyTorchJob failed because 1 Worker replica(s) failed."
FAILURE = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": MESSAGE, **SINCE}
LOCAL = {"KFPYTORCH_METRICS_HOST": "127.0.0.1"}


class Scraped(MetricsPage):
    def __init__(self, process):
        super().__init__(process.metrics.port)
        self.endpoint = process.endpoint

    def failures(self):
        samples = self.samples().items()
        return sum(value for (name, _), value in samples if name == "kfpytorch_job_failures_total")

    def count_retries(self):
        """Return the number of failed cleanups, each of which is retried."""
        return self.value("cluster_errors_total", operation="clean_up", error="ClusterUnavailable")

    def has_stored_all(self):
        """True if the server has observed the failure, and no verdict is left to store."""
        count = self.value("jobs", phase="RETRYABLE_FAILED", task_namespace="ns", queue="")
        return count == 1 and self.value("background_operations", operation="clean_up") == 0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with served() as api:
        api.apply(JOBS, job())
        folder = tmp_path_factory.mktemp("servers")
        flags = ["--metrics-port", "0"]
        with serve(api, folder / "a", flags, **LOCAL) as one, serve(api, folder / "b", flags, **LOCAL) as two:
            yield SimpleNamespace(api=api, one=Scraped(one), two=Scraped(two))


def wait_until(true):
    asyncio.run(serving.wait_until(true))


def asked_for(server, method):
    return sum(each.startswith(method) and each.endswith(NAME) for each in server.requests)


def test_each_metric_of_the_documentation_and_the_chart_is_exported(world):
    wait_until(lambda: world.one.value("jobs", phase="QUEUED", task_namespace="ns", queue="") == 1)
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", world.one.text(), re.MULTILINE))
    assert {name for name in types if name.startswith("kfpytorch_")} == {
        get_exported_name(metric) for metric in list_metrics()
    }
    exported = {*types} | {
        f"{name}_{part}" for name, kind in types.items() if kind == "histogram" for part in ("bucket", "sum")
    }
    chart = ROOT / "charts/kfpytorch-backend/files"
    pages = [*(ROOT / "docs").rglob("*.md"), chart / "dashboard.json", chart / "alerts.yaml"]
    metric = re.compile(r"\b(?:kfpytorch|process)_[a-z_]+(?:_total|_seconds|_bucket)\b")
    used = {name for page in pages for name in metric.findall(page.read_text())}
    assert len(used) > 10
    assert used - exported == set()


def test_metrics_contain_versions_and_the_age_of_the_watches(world):
    it, api = world.one, world.api
    versions = {"version": version("flytekitplugins-kfpytorch"), "python": platform.python_version()}
    assert it.value("build_info", **versions) == 1
    api.muted.add("pods")
    # Without data the age grows; every scrape computes it.
    wait_until(lambda: it.value("watch_age_seconds", kind="pods") > 1)
    before = it.value("watch_age_seconds", kind="pods")
    api.muted.clear()
    api.apply(PODS, pod())
    wait_until(lambda: it.value("watch_age_seconds", kind="pods") < before)
    ages = {dict(labels)["kind"] for name, labels in it.samples() if name == "kfpytorch_watch_age_seconds"}
    assert {"pods", "pytorchjobs.kubeflow.org"} <= ages


def test_each_background_operation_has_a_time_series(world):
    sources = (each.read_text() for each in (ROOT / "backend_plugin" / "shell").glob("*.py"))
    submitted = {name for text in sources for name in re.findall(r'submit\(\s*\(?"(\w+)"', text)}
    assert {"clean_up", "own_prerequisite", "record_start"} <= submitted
    names = {name for name, _ in world.one.samples() if name.endswith("background_operations")}
    shown = {dict(labels).get("operation") for name, labels in world.one.samples() if name in names}
    assert submitted <= shown


def test_failure_is_counted_once_by_two_servers_that_repeat_their_cleanup(world):
    """Both read the job before one of them can store its verdict, and neither can delete its pending pod."""
    api, servers = world.api, (world.one, world.two)
    storing = Fault("PATCH", path=f"/pytorchjobs/{NAME}", code=503, times=10**6)
    api.faults += [storing, Fault("DELETE", path="/pods/", code=503, times=10**6)]
    api.apply(PODS, {**pod(), "metadata": build_replica(api.get_object(JOBS, NAME), "master-0")})
    api.apply(JOBS, job(status={"conditions": [FAILURE]}))
    for each in servers:
        wait_until(lambda each=each: each.value("background_operations", operation="clean_up") == 1)
    wait_until(lambda: all(asked_for(api, method) >= 2 for method in ("GET", "PATCH")))
    storing.times = 0
    wait_until(lambda: ANNOTATION in api.get_object(JOBS, NAME)["metadata"].get("annotations", {}))
    for each, earlier in [(each, each.count_retries()) for each in servers]:
        # The first failure may be that of a request from before.
        wait_until(lambda each=each, earlier=earlier: each.count_retries() >= earlier + 2)
    api.faults.clear()
    for each in servers:
        wait_until(each.has_stored_all)
    assert sum(each.failures() for each in servers) == 1


def test_server_that_created_a_job_measures_its_wait(world):
    api, one, two = world.api, world.one, world.two
    api.do(lambda objects: objects.namespaces.update({NAMESPACE: "Active"}))
    api.remove(JOBS, NAME)  # A waiting job of another test.
    request = build_creation(custom={"masterReplicas": {"replicas": 1}})
    with grpc.insecure_channel(one.endpoint) as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        meta = stub.CreateTask(request, timeout=60).resource_meta
    job = api.get_object(JOBS, job_ref.decode(meta).name, NAMESPACE)
    for each in (one, two):
        wait_until(lambda each=each: each.value("oldest_waiting_job_seconds") > 0)
    assert one.value("job_wait_duration_seconds_count") == 0
    conditions = [{"type": kind, "status": "True", **SINCE} for kind in ("Created", "Running")]
    status = {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions}
    api.apply(JOBS, {**job, "status": status})
    running = {"phase": "RUNNING", "task_namespace": NAMESPACE, "queue": ""}
    for each in (one, two):
        wait_until(lambda each=each: each.value("jobs", **running) == 1)
    for name in ("job_wait_duration_seconds", "job_start_duration_seconds"):
        assert [each.value(f"{name}_count") for each in (one, two)] == [1, 0]
        assert 0 < one.value(f"{name}_sum") < 3600
    wait_until(lambda: one.value("oldest_waiting_job_seconds") == 0)

"""TrainJobs in a queue of the real Kueue, with the real Trainer; only the pods are simulated."""

import time

import pytest
from rig import fake_nodes, kueue, scheduling, trainer
from rig.caller import Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import wait_for

from backend_plugin import client

NAMESPACE = "queued"
SELECTOR = {"kubernetes.io/hostname": "fake-1"}
SETTINGS = {"kfpytorch": {"gang": {"scheduler": "kueue", "queue": "team"}}}


@pytest.fixture(scope="module", params=[kueue.OLDER, kueue.NEWER])
def release(request):
    return request.param


@pytest.fixture(scope="module")
def plane(programs, release, tmp_path_factory):
    """A control plane with Trainer and with Kueue, whose queue has the CPUs of one job on one node."""
    flavor, queue = kueue.quota("all", {"cpu": "2", "memory": "10Gi"})
    flavor["spec"] = {"nodeLabels": SELECTOR}
    with ControlPlane(tmp_path_factory.mktemp("kueue")) as plane:
        scheduling.start(plane)
        fake_nodes.start(plane, 2)
        trainer.start(plane)
        kueue.start(plane, kueue.TRAINJOBS, release)
        plane.namespace(NAMESPACE)
        for manifest in (flavor, queue, kueue.local_queue(NAMESPACE, "team", "all")):
            plane.admin.apply(manifest)
        yield plane


def list_pods(plane, attempt):
    return trainer.list_pods(plane.admin, NAMESPACE, attempt.job)


def list_warnings(plane, attempt):
    """Return the reasons of the events with which our server warns about a job."""
    selector = f"involvedObject.name={attempt.job},type=Warning"
    found = plane.admin.items(f"/api/v1/namespaces/{NAMESPACE}/events", fieldSelector=selector)
    return [each["reason"] for each in found if each["source"]["component"] == "kfpytorch"]


def test_node_selector_reaches_the_pods_or_its_loss_is_reported(plane, caller, release):
    attempt = caller.create(shape=Shape(workers=1, annotations={RUN: "10s"}))
    caller.wait_for(attempt, "RUNNING")
    selectors = [each["spec"].get("nodeSelector") for each in list_pods(plane, attempt).values()]
    message = caller.get(attempt).message
    if release == kueue.NEWER:
        assert selectors == [SELECTOR] * 2
        assert list_warnings(plane, attempt) == []
        assert "Kueue" not in message
    else:
        assert selectors == [None] * 2
        assert "Kueue 0.17.0 or newer" in message
        wait_for(lambda: list_warnings(plane, attempt), lambda reasons: reasons == ["QueueOutdated"])
    caller.succeeded(attempt)
    caller.wait_for(attempt, "SUCCEEDED")


def test_cancelled_job_stays_failed_and_releases_its_quota(plane, caller, served):
    # The end of its pods would restart this job, so it is ended by a suspension.
    first = caller.create(shape=Shape(workers=1, run_policy={"backoffLimit": 1}))
    caller.wait_for(first, "RUNNING")
    second = caller.create(shape=Shape(workers=1, annotations={RUN: "5s"}))
    caller.wait_for(second, "WAITING_FOR_RESOURCES", part="team")
    client.cancel_job(first.job, namespace=NAMESPACE, server=str(served.state))
    caller.wait_for(first, "FAILED")
    caller.wait_for(second, "RUNNING")
    caller.succeeded(second)
    caller.wait_for(second, "SUCCEEDED")
    time.sleep(5)  # Kueue resumes any admitted job, and the quota is free again.
    assert not list_pods(plane, first)
    assert caller.get(first).phase == "FAILED"


def test_cancelled_job_leaves_its_queue(plane, caller, served):
    first = caller.create(shape=Shape(workers=1))
    caller.wait_for(first, "RUNNING")
    second = caller.create(shape=Shape(workers=1))
    caller.wait_for(second, "WAITING_FOR_RESOURCES", part="team")
    client.cancel_job(second.job, namespace=NAMESPACE, server=str(served.state))
    caller.wait_for(second, "FAILED")
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/workloads"

    def list_active():
        return [
            each["spec"].get("active")
            for each in plane.admin.items(path)
            for owner in each["metadata"].get("ownerReferences", ())
            if owner["name"] == second.job
        ]

    wait_for(list_active, lambda active: active == [False], 30)
    caller.delete(first)

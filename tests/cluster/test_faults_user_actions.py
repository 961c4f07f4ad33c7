"""Actions of users, admins and nodes on jobs and pods outside Flyte, and the messages that result.

The operator, the scheduler and the garbage collector are real. The pod statuses are simulated.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from rig.api import jobs, pods
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt, Said, Shape
from rig.control_plane import ControlPlane
from rig.process import wait_until

from backend_plugin import client

NAMESPACE = "faults-people"
OVER = {"SUCCEEDED", "FAILED", "RETRYABLE_FAILED"}
PAIR = Shape(workers=1)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A job with a master and a worker that run until something happens."""

    plane: ControlPlane
    attempt: CallerAttempt

    def name(self, replica: str) -> str:
        return f"{self.attempt.job}-{replica}"

    def pod(self, replica: str = "worker-0") -> str:
        """Return the API path of a pod."""
        return pods(NAMESPACE, self.name(replica))

    def has_deadline(self, replica: str) -> bool:
        found = self.plane.admin.get(self.pod(replica))
        return found is not None and "activeDeadlineSeconds" in found["spec"]

    def set_pod_status(self, status: Mapping[str, Any], replica: str = "worker-0") -> None:
        """Write a pod status, as the kubelet does."""
        self.plane.admin.patch(self.pod(replica) + "/status", {"status": dict(status)})


def begun(plane: ControlPlane, caller: Caller, shape: Shape = PAIR) -> Running:
    job = Running(plane=plane, attempt=caller.create(shape=shape))
    for replica in ("master-0", "worker-0"):
        wait_until(
            lambda replica=replica: bool(
                (plane.admin.get(job.pod(replica)) or {"spec": {}})["spec"].get("nodeName")
            ),
            60,
            lambda: "it has no node",
        )
    return job


def running(plane: ControlPlane, caller: Caller, shape: Shape = PAIR) -> Running:
    job = begun(plane, caller, shape)
    wait_until(lambda: caller.get(job.attempt).phase == "RUNNING", 60, lambda: str(caller.get(job.attempt)))
    # The operator may replace a pod that is lost in the first second of a job, although the job has failed.
    first = plane.admin.get(job.pod())
    assert first is not None
    wait_until(lambda: time.time() > created(first) + 2, 60, lambda: "time stands still")
    return job


def created(manifest: Mapping[str, Any]) -> float:
    """Return the creation time in seconds since the epoch."""
    return datetime.fromisoformat(
        manifest["metadata"]["creationTimestamp"].replace("Z", "+00:00")
    ).timestamp()


def fetch_task(caller: Caller, job: Running) -> Said:
    """Wait for a terminal phase, and return it with its message."""
    wait_until(lambda: caller.get(job.attempt).phase in OVER, 60, lambda: str(caller.get(job.attempt)))
    return caller.get(job.attempt)


def build_failed_status(code: int, reason: str = "", message: str = "") -> Mapping[str, Any]:
    """Return the status of a pod whose container has terminated in this way."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = {"exitCode": code, "startedAt": now, "finishedAt": now, "reason": reason, "message": message}
    container = {
        "name": "pytorch",
        "image": "image:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"running": None, "terminated": state},
    }
    return {"phase": "Failed", "containerStatuses": [container]}


EVICTION = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. "
UNDER_PRESSURE = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": EVICTION,
}
TERMINATIONS = {
    "killed for memory": (build_failed_status(137, "OOMKilled"), ("OOMKilled", "memory")),
    "evicted": (
        {
            **build_failed_status(137, "Error"),
            "reason": "Evicted",
            "message": EVICTION,
            "conditions": [UNDER_PRESSURE],
        },
        ("Evicted", "low on resource: memory"),
    ),
}


@pytest.mark.parametrize("name", TERMINATIONS)
def test_pod_termination_is_reported_with_its_reason(plane: ControlPlane, caller: Caller, name: str) -> None:
    status, words = TERMINATIONS[name]
    job = running(plane, caller)
    job.set_pod_status(status)
    task = fetch_task(caller, job)
    assert task.phase == "RETRYABLE_FAILED", task
    assert [each for each in ("worker-0", *words) if each not in task.message] == [], task.message


def delete_job(job: Running) -> None:
    job.plane.admin.delete(jobs(NAMESPACE, job.attempt.job))


def delete_worker(job: Running) -> None:
    job.plane.admin.delete(job.pod())


def delete_all_pods(job: Running) -> None:
    for replica in ("master-0", "worker-0"):
        job.plane.admin.delete(job.pod(replica))


def take_node(job: Running) -> None:
    """Taint the node as out of service, and wait until its pod is being deleted."""
    found = job.plane.admin.get(job.pod())
    assert found is not None
    path = f"/api/v1/nodes/{found['spec']['nodeName']}"
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

    def leaves() -> bool:
        # The node controller writes all taints of a node together, and may remove this one.
        node = job.plane.admin.get(path)
        if node is not None and taint["key"] not in [each["key"] for each in node["spec"].get("taints", ())]:
            job.plane.admin.patch(path, {"spec": {"taints": [taint]}})
        return _is_leaving(job)

    wait_until(leaves, 60, lambda: "the worker stays")
    job.plane.admin.patch(path, {"spec": {"taints": None}})


def _is_leaving(job: Running) -> bool:
    found = job.plane.admin.get(job.pod())
    return found is None or "deletionTimestamp" in found["metadata"]


def test_cancelled_job_ends_and_keeps_its_failed_pods(
    plane: ControlPlane, served: Backend, caller: Caller
) -> None:
    again = {"replicas": 1, "restartPolicy": "RESTART_POLICY_ON_FAILURE"}
    job = running(plane, caller, Shape(custom={"masterReplicas": again, "workerReplicas": again}))
    before = {replica: plane.admin.get(job.pod(replica)) for replica in ("master-0", "worker-0")}
    client.cancel_job(job.attempt.job, namespace=NAMESPACE, server=str(served.state))
    for replica in before:
        wait_until(lambda replica=replica: job.has_deadline(replica), 60, lambda: "it has no deadline")
        job.set_pod_status({**build_failed_status(143, "Error"), "reason": "DeadlineExceeded"}, replica)
    wait_until(lambda: "Failed" in conditions(plane, job), 60, lambda: str(conditions(plane, job)))
    response = fetch_task(caller, job)
    assert (response.phase, "cancelled by a user" in response.message) == ("FAILED", True), response
    time.sleep(2)  # The operator would have deleted or replaced the pods by now.
    for replica, pod in before.items():
        found = plane.admin.get(job.pod(replica))
        assert found is not None
        assert pod is not None
        assert (found["metadata"]["uid"], found["status"]["phase"]) == (pod["metadata"]["uid"], "Failed")


def conditions(plane: ControlPlane, job: Running) -> set[str]:
    """Return the types of the true conditions of a job."""
    found = plane.admin.get(jobs(NAMESPACE, job.attempt.job)) or {}
    return {each["type"] for each in found["status"]["conditions"] if each["status"] == "True"}


DEEDS: Mapping[Callable[[Running], None], str] = {
    delete_job: "was deleted before it ended",
    delete_worker: "1 of its 2 pods no longer exist; find out what deleted them",
    delete_all_pods: "of its 2 pods no longer exist; find out what deleted them",
    take_node: "node",
}


@pytest.mark.parametrize("deed", DEEDS)
def test_deleted_job_pods_or_node_are_retryable(
    plane: ControlPlane, caller: Caller, deed: Callable[[Running], None]
) -> None:
    job = running(plane, caller)
    deed(job)
    response = fetch_task(caller, job)
    assert response.phase == "RETRYABLE_FAILED", response
    assert DEEDS[deed] in response.message, response.message

"""Actions of users, admins and nodes on jobs and pods outside Flyte, and the messages that result.

The operator, the scheduler and the garbage collector are real. The pod statuses are simulated.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from rig import kubelet
from rig.api import has_condition, jobs, pods
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt, Shape
from rig.control_plane import ControlPlane
from rig.process import wait_for, wait_until

from backend_plugin import client

NAMESPACE = "faults-people"
OVER = ("SUCCEEDED", "FAILED", "RETRYABLE_FAILED")
REPLICAS = ("master-0", "worker-0")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A job with a master and a worker that run until something happens."""

    plane: ControlPlane
    attempt: CallerAttempt

    def path(self, replica: str = "worker-0") -> str:
        """Return the API path of a pod."""
        return pods(NAMESPACE, f"{self.attempt.job}-{replica}")

    def pod(self, replica: str = "worker-0") -> dict[str, Any]:
        found = self.plane.admin.get(self.path(replica))
        assert found is not None
        return found


def running(plane: ControlPlane, caller: Caller, shape: Shape) -> Running:
    job = Running(plane=plane, attempt=caller.create(shape=shape))
    caller.wait_for(job.attempt, "RUNNING")
    # The operator may replace a pod that is lost in the first second of a job, although the job has failed.
    time.sleep(2)
    return job


def delete_worker(job: Running) -> None:
    job.plane.admin.delete(job.path())


def delete_all_pods(job: Running) -> None:
    for replica in REPLICAS:
        job.plane.admin.delete(job.path(replica))


def take_node(job: Running) -> None:
    """Taint the node as out of service, and wait until its pod is being deleted."""
    path = f"/api/v1/nodes/{job.pod()['spec']['nodeName']}"
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

    def leaves() -> bool:
        # The node controller writes all taints of a node together, and may remove this one.
        node = job.plane.admin.get(path)
        if node is not None and taint["key"] not in [each["key"] for each in node["spec"].get("taints", ())]:
            job.plane.admin.patch(path, {"spec": {"taints": [taint]}})
        found = job.plane.admin.get(job.path())
        return found is None or "deletionTimestamp" in found["metadata"]

    wait_until(leaves)
    job.plane.admin.patch(path, {"spec": {"taints": None}})


def test_cancelled_job_ends_and_keeps_its_failed_pods(
    plane: ControlPlane, served: Backend, caller: Caller
) -> None:
    again = {"replicas": 1, "restartPolicy": "RESTART_POLICY_ON_FAILURE"}
    job = running(plane, caller, Shape(custom={"masterReplicas": again, "workerReplicas": again}))
    before = [job.pod(replica)["metadata"]["uid"] for replica in REPLICAS]
    client.cancel_job(job.attempt.job, namespace=NAMESPACE, server=str(served.state))
    for replica in REPLICAS:
        wait_until(lambda replica=replica: "activeDeadlineSeconds" in job.pod(replica)["spec"])
        kubelet.end(plane.admin, job.pod(replica), 143, reason="DeadlineExceeded")
    wait_for(
        lambda: plane.admin.get(jobs(NAMESPACE, job.attempt.job)),
        lambda found: has_condition(found, "Failed"),
    )
    response = caller.wait_for(job.attempt, *OVER)
    assert (response.phase, "cancelled by a user" in response.message) == ("FAILED", True), response
    time.sleep(2)  # The operator would have deleted or replaced the pods by now.
    after = [job.pod(replica) for replica in REPLICAS]
    assert [each["metadata"]["uid"] for each in after] == before
    assert [each["status"]["phase"] for each in after] == ["Failed"] * 2


DEEDS: Mapping[Callable[[Running], None], str] = {
    delete_worker: "1 of its 2 pods no longer exist; find out what deleted them",
    delete_all_pods: "of its 2 pods no longer exist; find out what deleted them",
    take_node: "node",
}


@pytest.mark.parametrize("deed", DEEDS)
def test_deleted_pods_or_node_are_retryable(
    plane: ControlPlane, caller: Caller, deed: Callable[[Running], None]
) -> None:
    job = running(plane, caller, Shape(workers=1))
    deed(job)
    response = caller.wait_for(job.attempt, *OVER)
    assert response.phase == "RETRYABLE_FAILED", response
    assert DEEDS[deed] in response.message, response.message

"""Actions of users and admins on jobs and pods outside Flyte, and the messages that result.

The operator and the garbage collector are real. The pod statuses are simulated.
"""

import time

from rig import kubelet
from rig.api import has_condition, jobs, pods
from rig.backend import Backend
from rig.caller import RESTARTING, Caller, CallerAttempt, Shape
from rig.control_plane import ControlPlane
from rig.process import wait_for

from backend_plugin import client

NAMESPACE = "faults-people"
OVER = ("SUCCEEDED", "FAILED", "RETRYABLE_FAILED")


def create_running(caller: Caller, shape: Shape) -> CallerAttempt:
    """Create a job with a master and a worker that run until something happens."""
    attempt = caller.create(shape=shape)
    caller.wait_for(attempt, "RUNNING")
    # The operator may replace a pod that is lost in the first second of a job, although the job has failed.
    time.sleep(2)
    return attempt


def test_cancelled_job_ends_and_keeps_its_failed_pods(
    plane: ControlPlane, served: Backend, caller: Caller
) -> None:
    attempt = create_running(caller, RESTARTING)
    paths = [pods(NAMESPACE, f"{attempt.job}-{replica}") for replica in ("master-0", "worker-0")]
    before = [plane.admin.get_existing(path)["metadata"]["uid"] for path in paths]
    client.cancel_job(attempt.job, namespace=NAMESPACE, server=str(served.state))
    for path in paths:
        pod = wait_for(
            lambda path=path: plane.admin.get_existing(path),
            lambda found: "activeDeadlineSeconds" in found["spec"],
        )
        kubelet.end(plane.admin, pod, 143, reason="DeadlineExceeded")
    wait_for(lambda: plane.admin.get(jobs(NAMESPACE, attempt.job)), lambda job: has_condition(job, "Failed"))
    response = caller.wait_for(attempt, *OVER)
    assert (response.phase, "cancelled by a user" in response.message) == ("FAILED", True), response
    time.sleep(2)  # The operator would have deleted or replaced the pods by now.
    after = [plane.admin.get_existing(path) for path in paths]
    assert [each["metadata"]["uid"] for each in after] == before
    assert [each["status"]["phase"] for each in after] == ["Failed"] * 2


def test_deleted_pod_is_retryable(plane: ControlPlane, caller: Caller) -> None:
    attempt = create_running(caller, Shape(workers=1))
    plane.admin.delete(pods(NAMESPACE, f"{attempt.job}-worker-0"))
    response = caller.wait_for(attempt, *OVER)
    assert response.phase == "RETRYABLE_FAILED", response
    assert "1 of its 2 pods no longer exist; find out what deleted them" in response.message

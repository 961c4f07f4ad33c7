"""Messages for jobs that the cluster rejects, and for jobs and pods that users change outside Flyte.

The operator and the garbage collector are real. The pod statuses are simulated. A rejection that a user must
fix fails the task with its full message, because another attempt would be rejected, too. Only a full quota is
retried, because it can have room again.
"""

import time

import grpc
from rig import kubelet, operator, policies
from rig.api import build_manifest, has_condition, jobs, path_of, pods
from rig.backend import Backend
from rig.caller import RESTARTING, Caller, Shape, code_of
from rig.process import wait_for, wait_until

from backend_plugin import client

NAMESPACE = "faults-refused"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org"
OVER = ("SUCCEEDED", "FAILED", "RETRYABLE_FAILED")


def find_error(caller):
    """Return the error of a CreateTask call, or the phase and message of a rejected job, or an empty text."""
    try:
        attempt = caller.create()
    except grpc.RpcError as error:
        return f"{code_of(error)}: {error.details()}"
    if not attempt.job:
        response = caller.get(attempt)
        return f"{response.phase}: {response.message}"
    caller.delete(attempt)
    return ""


def wait_for_error(caller, start):
    """Wait until a CreateTask call has an error that starts with this text, and return the error."""
    return wait_for(lambda: find_error(caller), lambda error: error.startswith(start))


def test_policy_rejection_contains_the_message_of_the_policy(plane, caller):
    name = "no-images-of-strangers"
    kind, text = ("kubeflow.org", "pytorchjobs"), "images come from registry.example.org"
    with plane.admin.having(*policies.refuse(name, NAMESPACE, kind, "false", text)):
        error = wait_for_error(
            caller, "FAILED: the cluster refuses the job (Invalid): pytorchjobs.kubeflow.org "
        )
    assert error.endswith(f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {text}")


def test_exhausted_quota_is_a_retryable_error(plane, caller):
    counted = "count/pytorchjobs.kubeflow.org"
    quota = build_manifest("v1", "ResourceQuota", "jobs", NAMESPACE, spec={"hard": {counted: "0"}})
    with plane.admin.having(quota):
        path = f"{path_of(quota)}/jobs"
        # The quota controller discovers new kinds every 30 s, and must first have synchronized the known
        # ones.
        wait_until(lambda: "used" in (plane.admin.get(path) or {}).get("status", {}), 150)
        error = wait_for_error(caller, "RESOURCE_EXHAUSTED: the job could not be created: ")
        assert f"exceeded quota: jobs, requested: {counted}=1, used: {counted}=" in error
        assert error.endswith(f"limited: {counted}=0; retry")
    wait_for(lambda: find_error(caller), lambda error: not error)


def test_terminating_namespace_error_contains_a_remedy(plane, served, tmp_path):
    name = "faults-ending"
    plane.namespace(name)
    kept = build_manifest("v1", "ConfigMap", "kept", name, finalizers=["kfpytorch.test/kept"])
    plane.admin.create(kept)
    plane.admin.delete(f"/api/v1/namespaces/{name}")
    with Caller(served.endpoint, tmp_path, name, again=False) as caller:
        error = wait_for_error(caller, "UNAVAILABLE: ")
        assert f"unable to create new content in namespace {name} because it is being terminated" in error
        assert "; run it in another project or domain, or after the namespace exists again" in error
        plane.admin.patch(f"{path_of(kept)}/kept", {"metadata": {"finalizers": None}})
        plane.admin.wait_until_gone(f"/api/v1/namespaces/{name}")
        remedy = "create the namespace, as Flyte does for each project and domain"
        assert f'namespaces "{name}" not found; {remedy}' in wait_for_error(caller, "UNAVAILABLE: ")


def test_missing_crds_are_reported_and_discovered_later(bare, tmp_path):
    """Uses its own cluster, because deleting the CRD deletes all jobs."""
    bare.namespace(NAMESPACE)
    bare.admin.delete(CRD)
    bare.admin.wait_until_gone(CRD)
    try:
        with (
            Backend(bare, tmp_path) as served,
            Caller(served.endpoint, tmp_path, NAMESPACE, again=False) as caller,
        ):
            error = wait_for_error(caller, "UNAVAILABLE: ")
            assert "the cluster has no pytorchjobs.kubeflow.org; install the training-operator" in error
            bare.crds(operator.crds())
            wait_until(lambda: bool(caller.create().job))
    finally:
        bare.crds(operator.crds())
    assert bare.admin.items(pods(NAMESPACE)) == []


def create_running(caller, shape):
    """Create a job with a master and a worker that run until something happens."""
    attempt = caller.create(shape=shape)
    caller.wait_for(attempt, "RUNNING")
    # The operator may replace a pod that is lost in the first second of a job, although the job has failed.
    time.sleep(2)
    return attempt


def test_cancelled_job_ends_and_keeps_its_failed_pods(plane, served, caller):
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


def test_deleted_pod_is_retryable(plane, caller):
    attempt = create_running(caller, Shape(workers=1))
    plane.admin.delete(pods(NAMESPACE, f"{attempt.job}-worker-0"))
    response = caller.wait_for(attempt, *OVER)
    assert response.phase == "RETRYABLE_FAILED", response
    assert "1 of its 2 pods no longer exist; find out what deleted them" in response.message

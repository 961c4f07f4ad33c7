"""The emulated operator of TrainJobs: admission of jobs and runtimes, jobs without pods, and failed pods."""

from datetime import datetime, timedelta, timezone

import pytest
from trainjob_requests import build_objects, change_replicated_job

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.objects import TRACKING, format_time, merge_patch
from backend_plugin.embedded.operators.base import JobSnapshot
from backend_plugin.embedded.operators.table import OPERATORS
from backend_plugin.embedded.operators.trainjob.job_spec import read_spec
from backend_plugin.embedded.operators.trainjob.status import find_failure

OPERATOR = OPERATORS["TrainJob"]
JOB, RUNTIME = build_objects()
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_objects_are_stored_with_defaults():
    defaults = {"suspend": False, "managedBy": "trainer.kubeflow.org/trainjob-controller"}
    assert OPERATOR.admit(JOB, RUNTIME) == merge_patch(JOB, {"spec": defaults})
    assert OPERATOR.admit_prerequisite(RUNTIME) == change_replicated_job(
        RUNTIME, {"groupName": "default", "replicas": 1}
    )


def test_job_without_its_runtime_is_rejected():
    with pytest.raises(RequestRejected) as caught:
        OPERATOR.admit(JOB, None)
    assert caught.value.code == 403
    assert OPERATOR.dialect.is_premature(caught.value.message)


def test_runtime_with_initializers_is_rejected_with_one_reason():
    job = {"name": "dataset-initializer", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    change = {"spec": {"template": {"spec": {"replicatedJobs": [job], "volumeClaimPolicies": []}}}}
    with pytest.raises(RequestRejected) as caught:
        OPERATOR.admit_prerequisite(merge_patch(RUNTIME, change))
    assert caught.value.code == 422
    assert "runs no initializers" in caught.value.message
    assert "volumeClaimPolicies" not in caught.value.message


def with_spec(manifest, **spec):
    return merge_patch(manifest, {"spec": spec})


def admit_job(manifest):
    return OPERATOR.admit(manifest, RUNTIME)


@pytest.mark.parametrize(
    ("admit", "manifest", "field"),
    [
        (admit_job, with_spec(JOB, runtimePatches=[]), "spec.runtimePatches"),
        (admit_job, with_spec(JOB, trainer={"image": "i"}), "spec.trainer.image"),
        (admit_job, with_spec(JOB, trainer={"numNodes": 1001}), "spec.trainer.numNodes"),
        (OPERATOR.admit_prerequisite, with_spec(RUNTIME, mlPolicy={"torch": {}}), "spec.mlPolicy.torch"),
        (OPERATOR.admit_prerequisite, with_spec(RUNTIME, mlPolicy={"numNodes": 1001}), "numNodes"),
        (OPERATOR.admit_prerequisite, change_replicated_job(RUNTIME, {"name": "launcher"}), "replicatedJobs"),
    ],
)
def test_unsupported_field_is_rejected(admit, manifest, field):
    with pytest.raises(RequestRejected) as caught:
        admit(manifest)
    assert caught.value.code == 422
    assert field in str(caught.value)


def reconcile(job, runtime):
    return OPERATOR.reconcile(JobSnapshot(job=job, pods=(), services=(), now=NOW, prerequisite=runtime))


@pytest.mark.parametrize(
    ("change", "runtime", "events"),
    [
        ({}, None, [("TrainJob", "TrainJobResourcesCreationFailed")]),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, None, []),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, RUNTIME, []),
    ],
    ids=["no runtime", "no runtime after the end", "another manager"],
)
def test_job_without_pods_has_an_event(change, runtime, events):
    done = reconcile(merge_patch(JOB, change), runtime)
    assert [(each["involvedObject"]["kind"], each["reason"]) for each in done.events] == events
    assert (done.status, done.actions) == (None, ())


def test_job_without_nodes_is_complete_with_its_first_status():
    status = reconcile(merge_patch(JOB, {"spec": {"trainer": {"numNodes": 0}}}), RUNTIME).status
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Complete", "AllJobsCompleted")


def build_failed_pod(code, seconds):
    ended = {"exitCode": code, "finishedAt": format_time(NOW + timedelta(seconds=seconds))}
    statuses = [{"name": "node", "state": {"terminated": ended}}]
    metadata = {"name": "p", "finalizers": [TRACKING]}
    return {"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": statuses}}


def test_failures_within_two_seconds_are_handled_together():
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]
    runtime = change_replicated_job(RUNTIME, {"template": {"spec": {"podFailurePolicy": {"rules": rules}}}})
    job = read_spec(JOB, runtime)
    pods = [build_failed_pod(*end) for end in ((1, 0), (7, 0), (42, 0), (1, 9))]
    at = NOW + timedelta(seconds=2)
    assert find_failure(job, pods[:2], NOW) == (None, at)
    for count, reason in ((2, "BackoffLimitExceeded"), (4, "PodFailurePolicy")):
        failure, _ = find_failure(job, pods[:count], at)
        assert failure["reason"] == reason

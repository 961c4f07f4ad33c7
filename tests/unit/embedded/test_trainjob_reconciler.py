"""Passes over a TrainJob: jobs without pods, and failed pods."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from trainjob_requests import build_objects, change_replicated_job

from backend_plugin.embedded.objects import TRACKING, format_time, merge_patch
from backend_plugin.embedded.operators.base import JobSnapshot, ReconcileResult
from backend_plugin.embedded.operators.table import OPERATORS
from backend_plugin.embedded.operators.trainjob.job_spec import read_spec
from backend_plugin.embedded.operators.trainjob.status import find_failure

JOB, RUNTIME = build_objects()
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
FAILED = {"conditions": [{"type": "Failed", "status": "True"}]}


def reconcile(job: Any, runtime: Any) -> ReconcileResult:
    snapshot = JobSnapshot(job=job, pods=(), services=(), now=NOW, prerequisite=runtime)
    return OPERATORS["TrainJob"].reconcile(snapshot)


@pytest.mark.parametrize(
    ("change", "runtime", "events"),
    [
        ({}, None, [("TrainJob", "TrainJobResourcesCreationFailed")]),
        ({"status": FAILED}, None, []),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, RUNTIME, []),
    ],
    ids=["no runtime", "no runtime after the end", "another manager"],
)
def test_job_without_pods_has_an_event(change: Any, runtime: Any, events: Any) -> None:
    done = reconcile(merge_patch(JOB, change), runtime)
    found: list[Any] = [*done.events]
    assert [(each["involvedObject"]["kind"], each["reason"]) for each in found] == events
    assert (done.status, done.actions) == (None, ())


def test_job_without_nodes_is_complete_with_its_first_status() -> None:
    status: Any = reconcile(merge_patch(JOB, {"spec": {"trainer": {"numNodes": 0}}}), RUNTIME).status
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Complete", "AllJobsCompleted")


def build_failed_pod(code: int, seconds: int) -> Any:
    """Return a pod whose container ended `seconds` after `NOW`."""
    ended = {"exitCode": code, "finishedAt": format_time(NOW + timedelta(seconds=seconds))}
    statuses = [{"name": "node", "state": {"terminated": ended}}]
    metadata = {"name": "p", "finalizers": [TRACKING]}
    return {"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": statuses}}


def test_failures_within_two_seconds_are_handled_together() -> None:
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
        assert (failure or {})["reason"] == reason

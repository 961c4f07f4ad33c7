"""Passes over a TrainJob that cannot create pods."""

from datetime import datetime, timezone
from typing import Any

import pytest
from trainjob_requests import build_objects

from backend_plugin.embedded.admission import merge_patch
from backend_plugin.embedded.operators.actions import JobSnapshot, ReconcileResult
from backend_plugin.embedded.operators.table import OPERATORS

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
        ({"spec": {"trainer": {"numNodes": -1}}}, RUNTIME, [("JobSet", "JobCreationFailed")]),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, RUNTIME, []),
    ],
    ids=["no runtime", "no runtime after the end", "negative nodes", "another manager"],
)
def test_job_without_pods_has_an_event(change: Any, runtime: Any, events: Any) -> None:
    done = reconcile(merge_patch(JOB, change), runtime)
    found: list[Any] = [*done.events]
    assert [(each["involvedObject"]["kind"], each["reason"]) for each in found] == events
    assert (done.status, done.actions) == (None, ())


def test_job_without_nodes_is_complete_with_its_first_status() -> None:
    done = reconcile(merge_patch(JOB, {"spec": {"trainer": {"numNodes": 0}}}), RUNTIME)
    status: Any = done.status
    assert [(each["type"], each["reason"]) for each in status["conditions"]] == [
        ("Complete", "AllJobsCompleted")
    ]

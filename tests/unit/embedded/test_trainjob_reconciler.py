"""Passes over a TrainJob: jobs without pods, and failed pods."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from trainjob_requests import build_objects, change_replicated_job

from backend_plugin.embedded.admission import merge_patch
from backend_plugin.embedded.operators.base import (
    CreatePod,
    DeletePod,
    JobSnapshot,
    ReconcileResult,
    ReleasePod,
)
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


class Cluster:
    """A TrainJob and its pods. The changes of a pass are applied without a scheduler or a kubelet."""

    def __init__(self, nodes: int, **job_spec: Any) -> None:
        self.job: Any = merge_patch(JOB, {"metadata": {"uid": "u"}, "spec": {"trainer": {"numNodes": nodes}}})
        self.runtime = change_replicated_job(RUNTIME, {"template": {"spec": job_spec}})
        self.pods: dict[str, Any] = {}
        self.now = NOW

    def reconcile(self) -> None:
        """Run passes until one changes nothing."""
        while True:
            self.now += timedelta(seconds=5)
            pods = tuple(self.pods.values())
            snapshot = JobSnapshot(
                job=self.job, pods=pods, services=({},), now=self.now, prerequisite=self.runtime
            )
            done = OPERATORS["TrainJob"].reconcile(snapshot)
            for action in done.actions:
                self._apply(action)
            if done.status is not None:
                self.job = {**self.job, "status": done.status}
            elif not done.actions:
                return

    def _apply(self, action: object) -> None:
        match action:
            case CreatePod(manifest):
                name = str(manifest["metadata"]["name"])
                self.pods[name] = merge_patch(
                    manifest, {"metadata": {"uid": name}, "status": {"phase": "Running"}}
                )
            case DeletePod(name):
                del self.pods[name]
            case ReleasePod(name):
                self.pods[name] = merge_patch(self.pods[name], {"metadata": {"finalizers": None}})

    def running(self) -> list[str]:
        return [name for name, pod in self.pods.items() if pod["status"]["phase"] == "Running"]

    def change(self, name: str, **status: Any) -> None:
        self.pods[name] = merge_patch(self.pods[name], {"status": status})
        self.reconcile()

    def ends(self) -> list[Mapping[str, str]]:
        status = self.job["status"]
        return [each for each in status.get("conditions", ()) if each["type"] in ("Complete", "Failed")]


def test_failed_pods_are_replaced_up_to_the_backoff_limit() -> None:
    cluster = Cluster(2, backoffLimit=2)
    cluster.reconcile()
    for failures in (1, 2):
        cluster.change(cluster.running()[0], phase="Failed")
        assert (len(cluster.pods), len(cluster.running()), cluster.ends()) == (2 + failures, 2, [])
    cluster.change(cluster.running()[0], phase="Failed")
    (end,) = cluster.ends()
    assert (end["type"], cluster.running()) == ("Failed", [])


def test_container_restarts_count_towards_the_backoff_limit() -> None:
    template = {"spec": {"restartPolicy": "OnFailure"}}
    cluster = Cluster(1, backoffLimit=2, template=template)
    cluster.reconcile()
    (pod,) = cluster.running()
    cluster.change(pod, containerStatuses=[{"name": "node", "restartCount": 1}])
    assert cluster.ends() == []
    cluster.change(pod, containerStatuses=[{"name": "node", "restartCount": 2}])
    assert [each["type"] for each in cluster.ends()] == ["Failed"]

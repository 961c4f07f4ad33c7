"""Tests of the warning about a Kueue that does not support the patches of a TrainJob."""

import pytest
from train_job_objects import BEGAN, at, build_job, build_pod, build_running, observe

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_events import build_warning_events, can_need_warning
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import judge

OURS = {"manager": "kfpytorch.flyte.org/connector"}
KUEUE = {"manager": "kueue.x-k8s.io/manager"}


def build_workload(status: str = "True", **metadata):
    admitted = {"type": "Admitted", "status": status, "lastTransitionTime": at(3)}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "trainjob-j-12345", "namespace": "ns", **metadata},
        "spec": {"queueName": "team"},
        "status": {"conditions": [admitted]},
    }


def observe_queued(*patches, suspend: bool = False, status: str = "True", **values) -> Observed:
    """Return the state of a job in a queue with these runtime patches; `values` are its options."""
    job = build_job(suspend=suspend, **values)
    job["spec"]["runtimePatches"] = [*patches]
    return observe(job, build_running(0), build_pod(1), pod_groups=[build_workload(status)])


def list_events(observed: Observed) -> list[tuple[str, str]]:
    if not can_need_warning(observed.job, observed.pod_groups):
        return []
    found = build_warning_events(observed, BEGAN)
    return [(each["type"], each["reason"]) for each in found]


@pytest.mark.parametrize(
    ("observed", "is_outdated"),
    [
        (observe_queued(), True),
        (observe_queued(OURS, named_runtime=True), True),
        (observe_queued(OURS, KUEUE, named_runtime=True), False),
        (observe_queued(KUEUE), False),
        (observe_queued(suspend=True), False),
        (observe_queued(status="False"), False),
        (observe(build_job(), build_running(0)), False),
    ],
    ids=[
        *("no patch", "only ours", "both", "only that of Kueue"),
        *("suspended", "not admitted", "without a queue"),
    ],
)
def test_a_queue_without_a_patch_is_outdated(observed, is_outdated):
    assert list_events(observed) == ([("Warning", "QueueOutdated")] if is_outdated else [])
    message = judge(observed, JudgingContext(), BEGAN).message
    assert ("Kueue 0.17.0 or newer" in message) is is_outdated
    assert "removed the patch" not in message


def test_a_lost_patch_is_reported_with_the_same_event_name_on_every_server():
    message = judge(observe_queued(named_runtime=True), JudgingContext(), BEGAN).message
    assert "removed the patch" in message
    first, second = (build_warning_events(observe_queued(), BEGAN) for _ in range(2))
    assert first == second


def test_other_jobs_have_no_such_event():
    job = {"kind": "PyTorchJob", "metadata": {"name": "j", "uid": "u", "creationTimestamp": at(0)}}
    observed = observe(job, pod_groups=[build_workload()])
    assert list_events(observed) == []
    assert build_warning_events(observed, BEGAN) == []
    assert build_warning_events(Observed(job=None), BEGAN) == []

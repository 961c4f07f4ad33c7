"""Tests for job warnings."""

import pytest
from cluster import BEGAN, condition, job, pod, running, verdict
from msgspec import structs
from waiting_gang import event, gang, group, members

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.observed import ReplicaSpec
from backend_plugin.core.pipeline import judge

SILENCE = "no scheduler has reported anything about its pods: "
LIMIT = {"type": "UnschedulableOnNodePool", "reasons": [{"reason": "OverLimit", "message": "over its limit"}]}
FULL = event("queue resource quota insufficient: insufficient cpu", name="j", kind="PodGroup")
NOT_READY = event("Job is not ready for scheduling.", name="j", kind="PodGroup", reason="NotReady")


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({"schedulerName": "yunikron"}, "is there a scheduler called yunikron, and does it run?"),
        ({}, "is there one with the schedulerName of these pods, and does it run?"),
    ],
)
def test_scheduler_that_does_not_run_is_named_after_a_delay(fields, question):
    assert "notes" not in verdict(gang(**fields), *members(), now=30).info
    result = verdict(gang(**fields), *members(), now=90)
    assert result.phase.value == "WAITING_FOR_RESOURCES"
    assert result.info["notes"] == [f"{SILENCE}{question}"]
    assert f"{SILENCE}{question}" in result.message.splitlines()


@pytest.mark.parametrize(
    "more",
    [
        {"events": [FULL]},
        {"events": [FULL], "pod_groups": [group("scheduling.volcano.sh")]},
        {"events": [NOT_READY], "pod_groups": [group("scheduling.run.ai")]},
        {"events": [NOT_READY], "pod_groups": [group("kueue.x-k8s.io", kind="Workload")]},
        {"pod_groups": [group("scheduling.volcano.sh", phase="Inqueue")]},
        {"pod_groups": [group("scheduling.run.ai", condition("Unschedulable"))]},
        {"pod_groups": [group("scheduling.run.ai", schedulingConditions=[LIMIT])]},
    ],
)
def test_scheduler_that_reports_on_the_gang_is_considered_running(more):
    assert "notes" not in verdict(gang(), *members(), now=90, **more).info


@pytest.mark.parametrize(
    "more",
    [
        {"events": [event("m", name="j", kind="PyTorchJob")]},
        {"pod_groups": [group("scheduling.volcano.sh")]},
        # A controller has written the status, not the scheduler.
        {"events": [FULL], "pod_groups": [group("scheduling.x-k8s.io", phase="Scheduling")]},
        {"pod_groups": [group("kueue.x-k8s.io", condition("Admitted"), kind="Workload")]},
    ],
)
def test_reports_of_other_components_do_not_suppress_the_scheduler_warning(more):
    (note,) = verdict(gang(), *members(), now=90, **more).info["notes"]
    assert note.startswith(SILENCE)


def test_foreign_pod_group_under_the_name_of_the_job_has_a_warning():
    observed = read_observed(
        {"job": gang(started=None), "pod_groups": [group("scheduling.x-k8s.io", phase="Pending")]}
    )
    stranger = structs.replace(observed.pod_groups[0], foreign=True)
    result = judge(structs.replace(observed, pod_groups=(stranger,)), JudgingContext(), BEGAN)
    assert "waits" not in result.info
    assert result.info["notes"] == [
        "a PodGroup j existed before the job and does not belong to it, so the job can have no group; "
        "delete the existing one, or start another attempt"
    ]


@pytest.mark.parametrize(
    ("elastic", "pods", "warned"),
    [
        (True, [pod("worker-0", "Pending", node=""), running("worker-1")], True),
        (True, [pod("worker-0", "Pending", node=""), pod("worker-1", "Pending", node="")], False),
        (True, [running("worker-0"), pod("worker-1", "Pending", node="")], False),
        (True, [running("worker-1")], False),
        (True, [running("master-0"), pod("worker-0", "Pending", node="")], False),
        (False, [pod("worker-0", "Pending", node=""), running("worker-1")], False),
    ],
)
def test_pending_rendezvous_host_of_placed_workers_has_a_warning(elastic, pods, warned):
    manifest = job()
    manifest["spec"] |= {"elasticPolicy": {"minReplicas": 1}} if elastic else {}
    if not any(each["metadata"]["name"] == "j-master-0" for each in pods):
        manifest["spec"]["pytorchReplicaSpecs"].pop("Master")
    notes = verdict(manifest, *pods).info.get("notes", [])
    assert any("worker-0 hosts the rendezvous" in note for note in notes) is warned


def test_first_node_of_a_train_job_is_its_rendezvous_host():
    pods = [pod("node-0", "Pending", node=""), running("node-1")]
    observed = read_observed({"job": job(), "pods": pods})
    nodes = (ReplicaSpec(role="node", replicas=2),)
    elastic = structs.replace(observed.job, elastic=True, groups=nodes)
    result = judge(structs.replace(observed, job=elastic), JudgingContext(), BEGAN)
    assert any("node-0 hosts the rendezvous" in note for note in result.info["notes"])

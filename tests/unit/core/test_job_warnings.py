"""Tests for job warnings."""

import pytest
from cluster import BEGAN, condition, job, observe, pod, running, verdict
from msgspec import structs
from waiting_gang import event, gang, group, members

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.observed import ReplicaSpec
from backend_plugin.core.pipeline import judge

SILENCE = "no scheduler has reported anything about its pods: "
LIMIT = {"type": "UnschedulableOnNodePool", "reasons": [{"reason": "OverLimit", "message": "over its limit"}]}
FULL = event("queue resource quota insufficient: insufficient cpu", name="j", kind="PodGroup")
NOT_READY = event("Job is not ready for scheduling.", name="j", kind="PodGroup", reason="NotReady")
WAITS = [pod(f"worker-{index}", "Pending", node="") for index in (0, 1)]


def test_scheduler_that_does_not_run_is_named_after_a_delay():
    questions = {
        "yunikron": "is there a scheduler called yunikron",
        "": "is there one with the schedulerName of",
    }
    for name, question in questions.items():
        assert "notes" not in verdict(gang(schedulerName=name), *members(), now=30).info
        result = verdict(gang(schedulerName=name), *members(), now=90)
        (note,) = result.info["notes"]
        assert note.startswith(f"{SILENCE}{question}")
        assert (result.phase.value, note in result.message) == ("WAITING_FOR_RESOURCES", True)


@pytest.mark.parametrize(
    ("is_running", "more"),
    [
        (True, {"events": [FULL]}),
        (True, {"events": [FULL], "pod_groups": [group("scheduling.volcano.sh")]}),
        (True, {"events": [NOT_READY], "pod_groups": [group("scheduling.run.ai")]}),
        (True, {"events": [NOT_READY], "pod_groups": [group("kueue.x-k8s.io", kind="Workload")]}),
        (True, {"pod_groups": [group("scheduling.volcano.sh", phase="Inqueue")]}),
        (True, {"pod_groups": [group("scheduling.run.ai", condition("Unschedulable"))]}),
        (True, {"pod_groups": [group("scheduling.run.ai", schedulingConditions=[LIMIT])]}),
        (False, {"events": [event("m", name="j", kind="PyTorchJob")]}),
        (False, {"pod_groups": [group("scheduling.volcano.sh")]}),
        # A controller has written the status, not the scheduler.
        (False, {"events": [FULL], "pod_groups": [group("scheduling.x-k8s.io", phase="Scheduling")]}),
        (False, {"pod_groups": [group("kueue.x-k8s.io", condition("Admitted"), kind="Workload")]}),
    ],
)
def test_scheduler_that_reports_on_the_gang_is_considered_running(is_running, more):
    notes = verdict(gang(), *members(), now=90, **more).info.get("notes", [])
    assert [note.startswith(SILENCE) for note in notes] == ([] if is_running else [True])


def test_foreign_pod_group_under_the_name_of_the_job_has_a_warning():
    groups = [group("scheduling.x-k8s.io", phase="Pending")]
    observed = observe(gang(started=None), pod_groups=groups)
    stranger = structs.replace(observed.pod_groups[0], foreign=True)
    result = judge(structs.replace(observed, pod_groups=(stranger,)), JudgingContext(), BEGAN)
    assert "waits" not in result.info
    (note,) = result.info["notes"]
    assert note.startswith("a PodGroup j existed before the job and does not belong to it")


@pytest.mark.parametrize(
    ("elastic", "pods", "warned"),
    [
        (True, [WAITS[0], running("worker-1")], True),
        (True, WAITS, False),
        (True, [running("worker-0"), WAITS[1]], False),
        (True, [running("worker-1")], False),
        (True, [running("master-0"), WAITS[0]], False),
        (False, [WAITS[0], running("worker-1")], False),
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
    observed = observe(job(), pod("node-0", "Pending", node=""), running("node-1"))
    nodes = (ReplicaSpec(role="node", replicas=2),)
    elastic = structs.replace(observed.job, elastic=True, groups=nodes)
    result = judge(structs.replace(observed, job=elastic), JudgingContext(), BEGAN)
    assert any("node-0 hosts the rendezvous" in note for note in result.info["notes"])

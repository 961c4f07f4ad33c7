"""Tests for the events of a job that runs, waits again and resumes, and for job warnings."""

from datetime import timedelta

import pytest
from cluster import BEGAN, RUNNING, SUCCEEDED, at, condition, job, observe, verdict
from cluster_pods import anew, pod, running, unplaced, with_metadata
from msgspec import structs
from waiting_gang import event, gang, group, members

from backend_plugin.core.judging import job_events
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_events import JobEventDecision, JobEventReason
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.observed import ReplicaSpec
from backend_plugin.core.pipeline import decide_job_event, judge

NO_ROOM = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
STOPPED = {**RUNNING, "status": "False"}
SUSPENDED = condition("Suspended", since=150)
ALL = [running(name) for name in ("master-0", "worker-0")]
LOST = [running("master-0"), anew(unplaced("worker-0", NO_ROOM))]
ABOUT = {"kind": "PyTorchJob", "name": "j"}
SILENCE = "no scheduler has reported anything about its pods: "
LIMIT = {"type": "UnschedulableOnNodePool", "reasons": [{"reason": "OverLimit", "message": "over its limit"}]}
FULL = event("queue resource quota insufficient: insufficient cpu", name="j", kind="PodGroup")
NOT_READY = event("Job is not ready for scheduling.", name="j", kind="PodGroup", reason="NotReady")
WAITS = [pod(f"worker-{index}", "Pending", node="") for index in (0, 1)]


def workload():
    held = condition("QuotaReserved", "False", since=151, reason="Pending", message="no quota")
    evicted = condition("Evicted", since=149, reason="Preempted")
    return group("kueue.x-k8s.io", held, evicted, kind="Workload", spec={"queueName": "team"})


def decide(manifest, *pods, now: float = 200, **more) -> JobEventDecision | None:
    observed = read_observed({"job": manifest, "pods": list(pods), **more})
    return decide_job_event(observed, JudgingContext(), BEGAN + timedelta(seconds=now))


def find_reason(manifest, *pods, **more) -> JobEventReason | None:
    found = decide(manifest, *pods, **more)
    return found and found.reason


def build_event(reason: str, seconds: float, **more):
    return {"involvedObject": ABOUT, "reason": reason, "lastTimestamp": at(seconds), **more}


def test_event_of_a_job_stopped_by_its_queue_contains_the_pending_reason():
    written = decide(gang(STOPPED, SUSPENDED, started=None), pod_groups=[workload()]).event
    name, message = written["metadata"].pop("name"), written.pop("message")
    assert written == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "involvedObject": {**ABOUT, "apiVersion": "kubeflow.org/v1", "namespace": "ns", "uid": "u"},
        "type": "Warning",
        "reason": "WaitingForResources",
        "source": {"component": "kfpytorch"},
        "reportingComponent": "kfpytorch",
        "firstTimestamp": at(200),
        "lastTimestamp": at(200),
        "count": 1,
    }
    assert message.startswith("queue team: admitted before and evicted (Preempted); ")
    assert name.startswith("j.")


def test_event_name_does_not_change_when_more_replicas_are_lost():
    first = decide(job(RUNNING), *LOST).event
    assert first["message"].startswith("worker-0 waiting for a node: no node of 4 fits")
    # The name depends neither on the conditions of the pods nor on a pod that was created a second later.
    other = anew(unplaced("worker-1", NO_ROOM), created=161)
    both = decide(job(RUNNING, workers=2), *LOST, other).event
    assert both["metadata"]["name"] == first["metadata"]["name"]


NEVER_LOOKED_AT = pod("worker-0", "Pending", node="")
OWN_QUEUE, QUEUED = workload(), gang(STOPPED, SUSPENDED, started=None)
INCOMPLETE = group("scheduling.x-k8s.io", phase="Pending")


@pytest.mark.parametrize(
    ("manifest", "pods", "more", "expected"),
    [
        (job(RUNNING), ALL, {}, JobEventReason.RUNS),
        (job(RUNNING), LOST, {}, JobEventReason.WAITS),
        # The job is suspended without a reason, by a user or by a queue that has not reported one.
        (job(STOPPED, SUSPENDED, started=None), [], {"now": 160}, None),
        (job(STOPPED, SUSPENDED, started=None), [], {"now": 211}, JobEventReason.WAITS),
        (QUEUED, [], {"pod_groups": [OWN_QUEUE], "now": 152}, JobEventReason.WAITS),
        # The job has not run before.
        (gang(SUSPENDED, started=None), [], {"pod_groups": [OWN_QUEUE]}, None),
        (job(started=1), LOST, {}, None),
        # The scheduler has not set a condition, or does not run.
        (job(RUNNING), [ALL[0], anew(NEVER_LOOKED_AT)], {"now": 170}, None),
        (job(RUNNING), [ALL[0], anew(NEVER_LOOKED_AT)], {"now": 221}, JobEventReason.WAITS),
        (job(RUNNING), [ALL[0], anew(NEVER_LOOKED_AT)], {"pod_groups": [INCOMPLETE], "now": 170}, None),
        # The new pod is bound to a node and starts.
        (job(RUNNING), [ALL[0], anew(pod("worker-0", "Pending"))], {}, None),
        (job(RUNNING), [ALL[0], anew(pod("worker-0"))], {}, JobEventReason.RUNS),
        # The new pod does not exist yet.
        (job(RUNNING), ALL[:1], {}, None),
        # A succeeded replica counts as complete.
        (job(RUNNING), [ALL[0], pod("worker-0", "Succeeded")], {}, JobEventReason.RUNS),
        # The job restarts or has ended.
        (job(condition("Restarting")), ALL, {}, None),
        (job(RUNNING, SUCCEEDED), ALL, {}, None),
    ],
)
def test_waiting_event_needs_a_reason_and_resumed_event_needs_all_replicas(manifest, pods, more, expected):
    assert find_reason(manifest, *pods, **more) is expected


def test_elastic_job_waits_for_lost_replicas_and_not_for_absent_ones():
    manifest = job(RUNNING, workers=3)
    manifest["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3}
    never = unplaced("worker-2", NO_ROOM)
    assert find_reason(manifest, *ALL, never) is JobEventReason.RUNS
    assert find_reason(manifest, *ALL, anew(unplaced("worker-1", NO_ROOM)), never) is JobEventReason.WAITS
    # The reason for one pod does not apply to another pod, which has no condition.
    assert find_reason(manifest, *ALL, anew(pod("worker-1", "Pending", node="")), never, now=170) is None
    assert find_reason(manifest, *ALL, anew(pod("worker-1", "Pending")), never) is None
    assert find_reason(manifest, *ALL, anew(running("worker-1")), never) is JobEventReason.RUNS


WAITED, RESUMED = build_event("WaitingForResources", 161), build_event("Resumed", 161)
LATER, EARLIER_JOB = build_event("WaitingForResources", 170), build_event("WaitingForResources", -600)


@pytest.mark.parametrize(
    ("pods", "events", "now", "is_written"),
    [
        (LOST, [], 200, True),
        (LOST, [WAITED], 200, False),
        # The events report an earlier wait, or a later resumption, in any order.
        (LOST, [build_event("WaitingForResources", 20)], 200, True),
        (LOST, [RESUMED, WAITED], 200, True),
        (LOST, [build_event("WaitingForResources", 161, lastTimestamp="")], 200, True),
        # Events about other objects, or with other reasons.
        (LOST, [{**WAITED, "involvedObject": {**ABOUT, "name": "k"}}], 200, True),
        (LOST, [{**WAITED, "involvedObject": {"kind": "Pod", "name": "j"}}], 200, True),
        (LOST, [build_event("Unhealthy", 161)], 200, True),
        # Events expire after an hour, so an older change is not reported.
        (LOST, [], 160 + 3600, True),
        (LOST, [], 161 + 3600, False),
        (ALL, [], 200, False),
        (ALL, [WAITED], 200, True),
        (ALL, [WAITED, RESUMED], 200, False),
        (ALL, [{**WAITED, "lastTimestamp": ""}], 200, False),
        (ALL, [EARLIER_JOB], 200, False),
        (ALL, [LATER], 170 + 3_599, True),
        (ALL, [LATER], 170 + 3_601, False),
    ],
)
def test_earlier_job_events_decide_whether_a_new_one_is_written(pods, events, now, is_written):
    assert (decide(job(RUNNING), *pods, events=events, now=now).event is not None) == is_written


def test_event_message_is_limited_to_the_length_of_the_api_server():
    lost = [running("master-0"), anew(unplaced("worker-0", "é" * 900))]
    message = decide(job(RUNNING), *lost).event["message"]
    assert 1_000 < len(message.encode()) <= 1_024
    assert message.endswith("é")


@pytest.mark.parametrize(
    ("manifest", "pods", "events", "likely"),
    [
        (job(RUNNING), ALL, [], False),
        (job(started=1), LOST, [], False),
        (job(RUNNING), LOST, [], True),
        (job(STOPPED, SUSPENDED), ALL, [], True),
        (job(condition("Restarting")), ALL, [WAITED], True),
        (job(RUNNING, SUCCEEDED), LOST, [], False),
        (with_metadata(job(RUNNING), uid=""), LOST, [], False),
        (with_metadata(job(RUNNING), deletionTimestamp=at(190)), LOST, [], False),
    ],
)
def test_job_that_cannot_need_an_event_is_recognized(manifest, pods, events, likely):
    observed = read_observed({"job": manifest, "pods": pods, "events": events})
    assert job_events.can_need_event(observed.job, observed.pods, observed.events) is likely


def test_scheduler_that_does_not_run_is_named_after_a_delay():
    questions = ("yunikron", "a scheduler called yunikron"), ("", "one with the schedulerName of")
    for name, question in questions:
        assert "notes" not in verdict(gang(schedulerName=name), *members(), now=30).info
        result = verdict(gang(schedulerName=name), *members(), now=90)
        (note,) = result.info["notes"]
        assert note.startswith(f"{SILENCE}is there {question}")
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

# ruff: noqa: E501 - a row a text
"""Tests for the messages of YuniKorn about a waiting gang, and for what it does not report."""

import json

import pytest
from cluster import RUNNING, anew, at, condition, pod, running, verdict
from waiting_gang import event, first_line, gang, holder, members, waiting_line

from backend_plugin.core.scheduling import gang_annotation
from kfpytorch_common.causes import Cause

WAITS = "request is waiting for cluster resources become available"
NO_ROOM = condition("PodScheduled", "False", since=2, reason="Unschedulable", message=WAITS)
PLACED = [holder(f"{index}", role, node="n1") for index, role in enumerate(["master", "worker", "worker"])]
FULL = (
    "Request 'u-1' does not fit in queue 'root.team' (requested map[memory:1073741824 nvidia.com/gpu:2 pods:1 vcore:1000],"
    " available map[memory:1095216660480 nvidia.com/gpu:0 pods:1996 vcore:500])"
)
SKIPPED = "Task t is skipped from scheduling because the queue quota has been exceed"
POSTPONED = "Task ns/p is pending for the requested resources become available"
OVER_USER_QUOTA = FULL.replace("does not fit in queue 'root.team'", "exceeds the available user quota")
OF_USER = "500m cpu (1 requested, 500m free) and 2 nvidia.com/gpu (2 requested, 0 free)"
NEITHER = "neither its queue nor a node has enough free resources"
ONE = "Request 'u' does not fit in queue 'root.team' (requested map[nvidia.com/gpu:2], available map[nvidia.com/gpu:1])"
IN_QUEUE = "worker-0: waiting for 1 nvidia.com/gpu in queue root.team: 2 requested, 1 free"
IN_SERIES = {"lastTimestamp": None, "eventTime": at(55), "series": {"lastObservedTime": at(90)}}
REJECTED = "queue root.small cannot fit application j: task group request map[nvidia.com/gpu:10] larger than max queue allocation map[nvidia.com/gpu:8]"
FAILED = "Application j scheduling failed, reason: ApplicationRejected: " + REJECTED
RESUMED = "Application j resuming as non-gang application (SOFT)"
FALLEN_BACK = "Application j fall back to normal scheduling"
UNREAD = "unable to get taskGroups for pod, reason: x"
UNLIKE_PLACEHOLDER = "Task group 'w' in application 'j': allocation resources 'a' are not matching placeholder 'b' allocation with ID 'c'"


def test_pending_reason_is_read_from_the_placeholder_pods():
    waiting = [holder("x", "worker", NO_ROOM), holder("y", "worker", NO_ROOM)]
    result = verdict(gang(queue="root.team"), *members(), *PLACED, *waiting)
    assert (result.phase.value, result.cause) == ("WAITING_FOR_RESOURCES", Cause.UNSCHEDULABLE)
    amounts = "4 nvidia.com/gpu (10 requested, 6 held), 8 cpu (20 requested, 12 held) and 32Gi memory (80Gi requested, 48Gi held)"
    assert first_line(result) == f"waiting for {amounts} in queue root.team (0 of 5 replicas ready)"


def test_queue_shortage_is_read_from_an_event():
    waiting = [holder("x", "worker"), holder("y", "worker")]
    events = [
        event(FULL, name="tg-j-worker-x", reason="Informational"),
        event("y", name="tg-j-worker-y"),
        event(FULL.replace("root.team", "root.other"), name="tg-j-worker-of-another"),
    ]
    result = verdict(gang(), *members(), *PLACED, *waiting, events=events)
    assert (result.phase.value, result.cause) == ("WAITING_FOR_RESOURCES", Cause.QUEUE)
    amounts = "4 nvidia.com/gpu (10 requested, 6 held) and 8 cpu (20 requested, 12 held)"
    assert first_line(result) == f"waiting for {amounts} in queue root.team (0 of 5 replicas ready)"


@pytest.mark.parametrize(
    ("worker", "start"),
    [
        ({"cpu": "4", "memory": "16Gi"}, "waiting for 8 cpu (20 requested, 12 held) and 32Gi memory (80Gi requested, 48Gi held) in"),
        ({}, "waiting for 1 of 4 places: "),
    ],
)  # fmt: skip
def test_devices_that_are_all_held_are_not_reported_as_missing(worker, start):
    job = gang()
    annotations = job["metadata"]["annotations"]
    asked = json.loads(annotations[gang_annotation.ANNOTATION])
    asked["roles"][1]["requests"] = worker
    if not worker:
        asked["roles"][0]["requests"] = {"nvidia.com/gpu": "2"}
    annotations[gang_annotation.ANNOTATION] = json.dumps(asked)
    assert waiting_line(*members(), *PLACED, holder("x", "worker", NO_ROOM), job=job).startswith(start)


def test_gang_whose_placeholders_are_placed_or_replaced_is_not_queued_again():
    placed = condition("PodScheduled")
    holders = [holder(f"{index}", "worker", placed, node="n1") for index in range(5)]
    assert verdict(gang(), *members(), *holders, now=2).phase.value == "WAITING_FOR_RESOURCES"
    events = [event("bound", name="tg-j-worker-x")]
    assert verdict(gang(), *members(), events=events, now=2).phase.value == "WAITING_FOR_RESOURCES"
    assert verdict(gang(), *members(), now=2).phase.value == "QUEUED"


@pytest.mark.parametrize(
    ("message", "reason", "cause"),
    [
        (SKIPPED, "master-0 waiting: its queue has too few free resources", Cause.QUEUE),
        (POSTPONED, f"master-0 waiting for a node: {NEITHER}", Cause.UNSCHEDULABLE),
        (OVER_USER_QUOTA, f"master-0: waiting for {OF_USER} in the cluster", Cause.QUEUE),
    ],
)
def test_pod_outside_a_gang_has_its_own_pending_reason(message, reason, cause):
    lonely = pod("master-0", "Pending", node="", conditions=[{**NO_ROOM, "message": message}])
    result = verdict(gang(workers=0), lonely)
    assert (first_line(result), result.cause) == (f"{reason} (0 of 1 replicas ready)", cause)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"lastTimestamp": at(60)}, f"{IN_QUEUE} at 00:01:00 UTC"),
        # The numbers are those of the first report.
        (IN_SERIES, f"{IN_QUEUE} at 00:00:55 UTC"),
        # The event is about the earlier pod incarnation.
        ({"lastTimestamp": at(40)}, f"worker-0 waiting for a node: {NEITHER}"),
    ],
)
def test_queue_event_of_a_recreated_replica_sets_its_pending_reason(times, reason):
    again = anew(pod("worker-0", "Pending", node="", conditions=[NO_ROOM]), 50)
    told_of = event(ONE, name="j-worker-0", **times)
    others = event("is queued and waiting for allocation", name="j-worker-0", lastTimestamp=at(70))
    result = verdict(gang(RUNNING, workers=1), running("master-0"), again, events=[told_of, others])
    assert (result.phase.value, first_line(result)) == ("RUNNING", f"{reason} (1 of 2 replicas ready)")
    assert result.cause is (Cause.QUEUE if "in queue" in reason else Cause.UNSCHEDULABLE)


def test_placeholder_pod_with_a_node_no_longer_waits_for_its_queue():
    state = {"waiting": {"reason": "ErrImagePull", "message": "denied"}}
    stuck = holder("x", "worker", condition("PodScheduled"), node="n1")
    stuck["status"] |= {"phase": "Pending", "containerStatuses": [{"image": "p", "state": state}]}
    events = [event(ONE, name="tg-j-worker-x", reason="Informational")]
    result = verdict(gang(), *members(), *PLACED, stuck, events=events, now=100)
    assert first_line(result) == "image p: denied (0 of 5 replicas ready)"


def test_rejected_application_is_reported_despite_later_members():
    cut_off = {"reason": "ApplicationRejected", "message": " queue root.small cannot fit application j"}
    rejected, *late = pod("master-0", "Failed", node="", **cut_off), *members()[1:]
    failed = event(FAILED, reason="ApplicationFailed", type="Warning")
    result = verdict(gang(), rejected, *late, events=[failed])
    assert (result.phase.value, result.reason) == ("FAILED", "ApplicationRejected")
    assert first_line(result) == f"its scheduler has rejected it: {REJECTED}"
    cut = verdict(gang(), rejected, *late)
    # The event with the full message has not arrived.
    assert cut.phase.value == "WAITING_FOR_RESOURCES"
    assert first_line(cut).startswith(f"its scheduler has rejected it:{cut_off['message']} (")


@pytest.mark.parametrize(
    ("action", "message", "warning"),
    [
        ("GangSchedulingFailed", RESUMED, "it is no longer a gang"),
        ("PlaceholderCreateFailed", FALLEN_BACK, "it is not a gang: its scheduler could not create"),
        ("TaskGroupsError", UNREAD, "it is not a gang: its scheduler cannot read"),
        ("X", UNLIKE_PLACEHOLDER, "a pod has other requests than its placeholder pod"),
    ],
)
def test_abandoned_gang_scheduling_has_a_warning(action, message, warning):
    job = gang(condition("Running"), workers=0)
    told = event(message, reason="GangScheduling", action=action)
    result = verdict(job, running("master-0"), events=[told])
    assert result.phase.value == "RUNNING"
    (note,) = result.info["notes"]
    assert note.startswith(warning)
    assert note.endswith(f"({message})")
    assert result.message.splitlines()[1:] == [note]
    wordless = verdict(job, running("master-0"), events=[event("", reason=action)])
    assert ("notes" in wordless.info) is (action != "X")

# ruff: noqa: E501 - a row a case
"""Tests for the messages of gang schedulers about a waiting gang; those of KAI and Volcano are not recorded."""

from datetime import timedelta

import pytest
from cluster import RUNNING, at, condition, verdict
from cluster_pods import anew, build_ended_pod, pod, running
from waiting_gang import (
    ASKS,
    build_waiting_members,
    event,
    first_line,
    gang,
    group,
    holder,
    members,
    waiting_line,
)

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.pending_reasons import parse_scheduler_message
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

API = "scheduling.x-k8s.io"
SIBLINGS = (
    "pre-filter pod j-master-0 cannot find enough sibling pods, current pods number: 3, minMember of group: 5"
)
TEXTS = {
    f"0/4 nodes are available: {SIBLINGS}. preemption: 0/4 nodes are available.": "3 of the 5 members of its gang exist",
    "0/4 nodes are available: pre-filter pod j-master-0 cannot proceed due to gated pods in the same PodGroup.": "scheduling gates hold members of its gang",
    "PodGroup ns/j gets rejected due to Pod j-worker-1 is unschedulable even after PostFilter": "not all members of its gang can be placed",
    "podGroup ns/j failed recently": "not all members of its gang can be placed",
    # The member was placed, and the others were not placed in time.
    "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Coscheduling.": "not all members of its gang can be placed",
    "0/6 nodes are available: 4 Insufficient nvidia.com/gpu, 6 Insufficient memory. preemption: 0/6 nodes are available: 6 No preemption victims found for incoming pod., PodGroup ns/j gets rejected due to Pod j-worker-1 is unschedulable even after PostFilter.": "no node of 6 fits: 4 lack nvidia.com/gpu; 6 lack memory",
    '0/6 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling., PodGroup ns/j gets rejected due to Pod j-worker-1 is unschedulable even after PostFilter.': 'no node of 6 fits: persistentvolumeclaim "data" not found',
    "PodGroup not found": "its PodGroup did not exist when its scheduler checked",
    # Messages about a pod without a pod group, or without a quantity.
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: no victims, can not find pod group": "no node of 4 fits: 4 lack nvidia.com/gpu",
    "resource gap: map[].": "resource gap: map[].",
    "resource gap: map[gpu:{{x 0} {<nil>}}].": "resource gap: map[gpu:{{x 0} {<nil>}}].",
}
GAP = "0/4 nodes are available: resource gap: map[nvidia.com/gpu:{{4 0} {<nil>}  DecimalSI}]."
FREE = "waiting for 4 nvidia.com/gpu in the cluster: 10 requested, 6 free at 00:01:05 UTC (0 of 5 replicas ready)"
BEYOND = {"queueResourceLimits": {"nvidia.com/gpu": "8"}}
VOLCANO = "scheduling.volcano.sh"
PENDING = group(VOLCANO, phase="Pending")


@pytest.mark.parametrize(("message", "text"), TEXTS.items())
def test_coscheduling_message_is_parsed_into_plain_text(message, text):
    assert parse_scheduler_message(message).text == text


@pytest.mark.parametrize(
    ("gap", "placed", "numbers"),
    [
        (2, 4, "10 requested, 8 held"),
        (2, 3, "10 requested, 6 held, 2 free"),
        (2, 0, "10 requested, 8 free"),
        # The message is older than the binding of the last member.
        (4, 4, "10 requested, 8 held"),
    ],
)
def test_resources_held_by_gang_members_are_not_counted_as_free(gap, placed, numbers):
    pods = build_waiting_members(f"resource gap: map[nvidia.com/gpu:{{{{{gap} 0}} {{<nil>}}  DecimalSI}}].")
    pods[:placed] = [running(name) for name in ("master-0", "worker-0", "worker-1", "worker-2")[:placed]]
    # The nodes lack resources, not the queue that has admitted the job.
    result = verdict(gang(RUNNING, queue="team"), *pods)
    assert result.message.startswith(f"waiting for {gap} nvidia.com/gpu in the cluster: {numbers} (")


def test_outdated_member_message_does_not_hide_the_gang_message():
    early, *_ = build_waiting_members(f"0/4 nodes are available: {SIBLINGS}.")
    waits, groups = build_waiting_members(GAP), [group(API, phase="Scheduling")]
    assert verdict(gang(), early, *waits[1:], pod_groups=groups) == verdict(gang(), *waits, pod_groups=groups)


def test_finished_member_holds_no_resources():
    pods = [running("master-0"), build_ended_pod("worker-0", 0), *build_waiting_members(GAP)[2:]]
    numbers = "10 requested, 2 held, 4 free ("
    message = verdict(gang(RUNNING), *pods).message
    assert message.startswith(f"waiting for 4 nvidia.com/gpu in the cluster: {numbers}")


@pytest.mark.parametrize(
    ("now", "phase", "warned"), [(20, "", False), (99, "", True), (99, "Scheduling", False)]
)
def test_pod_group_without_a_controller_has_a_warning(now, phase, warned):
    waits = build_waiting_members("podGroup ns/j failed recently")
    result = verdict(gang(), *waits, pod_groups=[group(API, phase=phase)], now=now)
    assert ("does scheduler-plugins-controller run?" in result.message) is warned
    assert ("notes" in result.info) is warned


def test_pod_group_of_an_unknown_api_without_a_status_gives_no_pending_reason():
    assert "waits" not in verdict(gang(started=None), pod_groups=[group("")]).info


def test_free_amount_has_the_time_of_its_report():
    reported = [event(GAP, lastTimestamp=at(seconds)) for seconds in (5, 65)]
    other = event("else", lastTimestamp=at(99))
    series = {"count": 2, "lastObservedTime": at(80)}
    # A repeated event has the text of the first report and the time of the last.
    repeated = event(GAP, lastTimestamp=None, eventTime=at(30), series=series)
    assert waiting_line(*build_waiting_members(GAP), events=[*reported, other, repeated]) == FREE


def test_replicas_with_equal_numbers_share_one_line_if_one_event_has_a_time():
    first, *others = build_waiting_members(GAP)
    _, *rejected = build_waiting_members(f"{GAP} PodGroup ns/j gets rejected due to Pod j-master-0.")
    assert len(rejected) == len(others)
    result = verdict(gang(), first, *rejected, events=[event(GAP, lastTimestamp=at(65))])
    assert [line for line in result.message.splitlines() if line.startswith("waiting for")] == [FREE]


def limited(reason="OverLimit", message="over its limit", **fields):
    requested = {"cpu": "20", "example.com/nic": "8", "memory": "80Gi", "nvidia.com/gpu": "10"}
    details = {
        "name": "research",
        "podGroupRequestedResources": requested,
        "queueAllocatedResources": {"nvidia.com/gpu": "6"},
        "queueResourceLimits": {"example.com/nic": "8", "cpu": "-1", "memory": "?", "nvidia.com/gpu": "12"},
        **fields,
    }
    why = {"reason": reason, "message": message, "details": {"queueDetails": details}}
    conditions = [{"type": "UnschedulableOnNodePool", "reasons": [why]}]
    return group("scheduling.run.ai", schedulingConditions=conditions)


def test_request_above_the_queue_limit_is_reported_as_unsatisfiable():
    result = verdict(gang(started=None), pod_groups=[limited(**BEYOND)])
    line = "queue research: it requests 10 nvidia.com/gpu, and the limit of its queue is 8"
    assert first_line(result) == f"{line} (0 of 5 replicas ready)"
    timeouts = JudgingSettings(queue_timeout_by_cause={"unsatisfiable": timedelta(minutes=1)})
    soon = JudgingContext(judging=timeouts)
    for why, gone in ((limited(**BEYOND), True), (limited(), False)):
        judged = verdict(gang(started=None), pod_groups=[why], now=70, rules=soon)
        assert (judged.phase.value == "RETRYABLE_FAILED") is gone
    # The queue may borrow quota from others.
    quota = waiting_line(job=gang(started=None), pod_groups=[limited("NonPreemptibleOverQuota", **BEYOND)])
    assert quota.startswith("waiting for 8 nvidia.com/gpu in queue research")


@pytest.mark.parametrize("order", [1, -1])
def test_scheduling_reason_with_numbers_is_preferred(order):
    bare = limited("", "no nodes", podGroupRequestedResources={})
    other = limited("NonPreemptibleOverQuota")
    for several, start in (
        ([bare, limited()], "waiting for 4"),
        ([bare, other, limited(**BEYOND)], "queue research: it requests"),
    ):
        reasons = [each["status"]["schedulingConditions"][0] for each in several[::order]]
        one = group("scheduling.run.ai", schedulingConditions=reasons)
        assert waiting_line(job=gang(started=None), pod_groups=[one]).startswith(start)


def test_message_about_missing_pods_is_read_from_an_event():
    message = "Job is not ready. Waiting for 4 pods for SubGroup worker, currently 2 exist, 0 are gated."
    ready = event(message, kind="PodGroup", name="pg-j-u", reason="NotReady")
    line = "2 of the 4 pods of worker exist (0 of 5 replicas ready)"
    assert waiting_line(job=gang(started=None), events=[ready]) == line
    for other in ({"message": "new words"}, {"reason": "Evict"}):
        assert "waits" not in verdict(gang(started=None), events=[{**ready, **other}]).info
    both = verdict(gang(started=None), events=[ready], pod_groups=[limited()])
    assert first_line(both).startswith("waiting for 4 nvidia.com/gpu")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("queue resource quota insufficient: insufficient nvidia.com/gpu", "waiting for nvidia.com/gpu in queue team: 10 requested"),
        ("resource in cluster is overused: overused nvidia.com/gpu, overused cpu", "waiting for nvidia.com/gpu (10 requested) and cpu (20 requested) in queue team"),
        ("something else", "queue team: the group is not admitted yet"),
    ],
)  # fmt: skip
def test_reason_for_a_pending_pod_group_is_read_from_its_events(message, text):
    reported = event(message, name="j", kind="PodGroup", reason="Unschedulable")
    line = waiting_line(job=gang(started=None), pod_groups=[PENDING], events=[reported])
    assert line == f"{text} (0 of 5 replicas ready)"
    admitted = verdict(gang(started=None), pod_groups=[group(VOLCANO, phase="Inqueue")], events=[reported])
    assert "waits" not in admitted.info


@pytest.mark.parametrize(("placed_at", "waits"), [(4, False), (3, False), (2, True)])
def test_condition_before_the_placement_of_the_gang_is_ignored(placed_at, waits):
    unplaced = condition("Unschedulable", since=3, reason="NotEnoughResources", message="x")
    placed = condition("Scheduled", since=placed_at)
    result = verdict(gang(started=None), pod_groups=[group(VOLCANO, unplaced, placed, phase="Running")])
    assert ("waits" in result.info) is waits


@pytest.mark.parametrize(("queue", "asked"), [("team", "; is there a queue team, and is it open?"), ("", "")])
def test_missing_pod_group_of_the_operator_has_a_warning(queue, asked):
    job = gang(started=None, byOperator=True, queue=queue)
    job["status"]["conditions"] = [condition("Created", since=0)]
    early, late = verdict(job, now=30), verdict(job, now=90)
    assert early.phase.value == "QUEUED"
    assert late.phase.value == "WAITING_FOR_RESOURCES"
    warning = f"its operator has created neither a PodGroup nor pods; only its log contains the reason{asked}"
    assert late.message.splitlines()[1:] == [warning]
    assert warning not in verdict(job, now=90, pod_groups=[PENDING]).message
    assert "notes" not in verdict(gang(condition("Suspended"), started=None, byOperator=True), now=90).info


WAITS = "request is waiting for cluster resources become available"
NO_ROOM = condition("PodScheduled", "False", since=2, reason="Unschedulable", message=WAITS)
PLACED = [holder(f"{index}", role, node="n1") for index, role in enumerate(["master", "worker", "worker"])]
FULL = "Request 'u-1' does not fit in queue 'root.team' (requested map[memory:1073741824 nvidia.com/gpu:2 pods:1 vcore:1000], available map[memory:1095216660480 nvidia.com/gpu:0 pods:1996 vcore:500])"
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
    ("master", "worker", "start"),
    [
        (ASKS, {"cpu": "4", "memory": "16Gi"}, "waiting for 8 cpu (20 requested, 12 held) and 32Gi memory (80Gi requested, 48Gi held) in"),
        ({"nvidia.com/gpu": "2"}, {}, "waiting for 1 of 4 places: "),
    ],
)  # fmt: skip
def test_devices_that_are_all_held_are_not_reported_as_missing(master, worker, start):
    of_workers = {"name": "worker", "count": 4, "requests": worker}
    job = gang(roles=[{"name": "master", "count": 1, "requests": master}, of_workers])
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

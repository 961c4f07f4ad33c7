# ruff: noqa: E501 - a row a text
"""Tests for the messages of the coscheduling plugin about a waiting gang."""

import pytest
from cluster import RUNNING, at, build_ended_pod, running, verdict
from waiting_gang import build_waiting_members, event, gang, group, waiting_line

from backend_plugin.core.judging.pending_reasons import parse_scheduler_message

API = "scheduling.x-k8s.io"
SIBLINGS = (
    "pre-filter pod j-master-0 cannot find enough sibling pods, current pods number: 3, minMember of group: 5"
)
TEXTS = {
    f"0/4 nodes are available: {SIBLINGS}. preemption: 0/4 nodes are available.": "3 of the 5 members of its gang exist",
    "0/4 nodes are available: pre-filter pod j-master-0 cannot proceed due to gated pods in the same PodGroup.": "scheduling gates hold members of its gang",
    "PodGroup ns/j gets rejected due to Pod j-worker-1 is unschedulable even after PostFilter": "not all members of its gang can be placed",
    "optimistic rejection in PostFilter": "not all members of its gang can be placed",
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
    message = f"resource gap: map[nvidia.com/gpu:{{{{{gap} 0}} {{<nil>}}  DecimalSI}}]."
    pods = build_waiting_members(message)
    pods[:placed] = [running(name) for name in ("master-0", "worker-0", "worker-1", "worker-2")[:placed]]
    result = verdict(gang(RUNNING), *pods)
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
    ("now", "phase", "warned"), [(20, "", False), (300, "", True), (300, "Scheduling", False)]
)
def test_pod_group_without_a_controller_has_a_warning(now, phase, warned):
    waits = build_waiting_members("podGroup ns/j failed recently")
    result = verdict(gang(), *waits, pod_groups=[group(API, phase=phase)], now=now)
    assert ("does scheduler-plugins-controller run?" in result.message) is warned
    assert ("notes" in result.info) is warned


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

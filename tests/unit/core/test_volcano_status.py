# ruff: noqa: E501 - a row a case
"""Tests for the messages of Volcano about a waiting gang; the texts are published, not recorded."""

import pytest
from cluster import condition, verdict
from waiting_gang import event, gang, group, waiting_line

API = "scheduling.volcano.sh"
PENDING = group(API, phase="Pending")


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
    admitted = verdict(gang(started=None), pod_groups=[group(API, phase="Inqueue")], events=[reported])
    assert "waits" not in admitted.info


@pytest.mark.parametrize(("placed_at", "waits"), [(4, False), (3, False), (2, True)])
def test_condition_before_the_placement_of_the_gang_is_ignored(placed_at, waits):
    unplaced = condition("Unschedulable", since=3, reason="NotEnoughResources", message="x")
    placed = condition("Scheduled", since=placed_at)
    result = verdict(gang(started=None), pod_groups=[group(API, unplaced, placed, phase="Running")])
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
    there = verdict(job, now=90, pod_groups=[PENDING])
    assert warning not in there.message
    suspended = gang(condition("Suspended"), started=None, byOperator=True)
    assert "notes" not in verdict(suspended, now=90).info

# ruff: noqa: E501 - a row a case
"""Tests for the messages of KAI and Volcano about a waiting gang; the texts are published, not recorded."""

from datetime import timedelta

import pytest
from cluster import condition, verdict
from waiting_gang import event, first_line, gang, group, waiting_line

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.settings.judging import JudgingSettings

BEYOND = {"queueResourceLimits": {"nvidia.com/gpu": "8"}}
VOLCANO = "scheduling.volcano.sh"
PENDING = group(VOLCANO, phase="Pending")


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
    return group(
        "scheduling.run.ai", schedulingConditions=[{"type": "UnschedulableOnNodePool", "reasons": [why]}]
    )


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
    line = waiting_line(job=gang(started=None), events=[ready])
    assert line == "2 of the 4 pods of worker exist (0 of 5 replicas ready)"
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
    there = verdict(job, now=90, pod_groups=[PENDING])
    assert warning not in there.message
    suspended = gang(condition("Suspended"), started=None, byOperator=True)
    assert "notes" not in verdict(suspended, now=90).info

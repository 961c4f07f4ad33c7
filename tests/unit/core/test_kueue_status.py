# ruff: noqa: E501 - a row a text
"""Tests for the messages of Kueue about a job in its queue."""

from datetime import timedelta

import pytest
from cluster import BEGAN, RUNNING, condition, observe, verdict
from cluster_pods import running
from msgspec import structs
from waiting_gang import first_line, gang, group, members, waiting_line

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_warnings import IN_PART
from backend_plugin.core.judging.messages import get_remedy
from backend_plugin.core.pipeline import judge_with_expiry
from backend_plugin.core.scheduling import registry
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

POD_SET = "couldn't assign flavors to pod set worker: "
BEYOND = "insufficient quota for nvidia.com/gpu in flavor any, previously considered podsets requests (2) + current podset request (8) > maximum capacity (8)"
UNCOUNTED = BEYOND.replace("(2)", "(?)")
SUSPENDED = condition("Suspended")
SOON = JudgingContext(judging=JudgingSettings(queue_timeout_by_cause={"unsatisfiable": timedelta(minutes=1)}))
FULL = POD_SET + "insufficient unused quota for nvidia.com/gpu in flavor any, 4 more needed"
WRONG = "corrects or resumes its queue: `kubectl describe localqueues,clusterqueues -n ns`"
LIMIT = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
INACTIVE_SPEC = {"queueName": "team", "active": False}
KNOWN = {"name": "dataset-initializer", "count": 1, "requests": {"cpu": "1", "memory": "1Gi"}}
# A runtime of the cluster determines the requests.
UNKNOWN = {"name": "model-initializer", "count": 1}
OF_DATA = "couldn't assign flavors to pod set dataset-initializer: "
SILENT = group("kueue.x-k8s.io", kind="Workload", spec={"queueName": "team", "priority": 3})
PREEMPTED = condition("Evicted", reason="Preempted")
LACKS = "waiting for 4 nvidia.com/gpu in queue team: 10 requested, 6 free"
CHECKS = [
    {"name": "nodes", "state": "Pending", "message": "ETA: 10 min", "lastTransitionTime": "x"},
    {"name": "budget", "state": "Ready"},
    {"name": "other"},
]
NOT_READY = "nodes: ETA: 10 min; other: Pending"
# A part of each remedy.
TOO_MUCH = "it requests more than it can ever get"


def workload(message, *more, reason="Pending", **fields):
    held = condition("QuotaReserved", "False", reason=reason, message=message)
    return group("kueue.x-k8s.io", held, *more, kind="Workload", spec={"queueName": "team"}, **fields)


TEXTS = {
    f"{POD_SET}insufficient unused quota for nvidia.com/gpu in flavor any, 4 more needed": "waiting for 4 nvidia.com/gpu in queue team: 10 requested, 6 free",
    f"{POD_SET}insufficient unused quota for memory in flavor any, 16Gi more needed, insufficient unused quota for nvidia.com/gpu in flavor any, 4 more needed": "waiting for 16Gi memory (80Gi requested, 64Gi free) and 4 nvidia.com/gpu (10 requested, 6 free) in queue team",
    # Kueue counted only the master.
    "couldn't assign flavors to pod set master: insufficient unused quota for nvidia.com/gpu in flavor any, 1 more needed": "waiting for 1 nvidia.com/gpu in queue team: 10 requested, 1 free",
    # Either of two flavors would be sufficient.
    "insufficient unused quota for cpu in flavor a, 3 more needed, insufficient unused quota for cpu in flavor b, 9 more needed": "waiting for 3 cpu in queue team: 20 requested, 17 free",
    "insufficient unused quota for cpu in flavor a, 9 more needed, insufficient unused quota for cpu in flavor b, 3 more needed": "waiting for 3 cpu in queue team: 20 requested, 17 free",
    "insufficient unused quota for cpu in flavor a, ? more needed, insufficient unused quota for cpu in flavor b, 3 more needed": "waiting for 3 cpu in queue team: 20 requested, 17 free",
    "insufficient unused quota for cpu in flavor a, 3 more needed, insufficient unused quota for cpu in flavor b, ? more needed": "waiting for 3 cpu in queue team: 20 requested, 17 free",
    # One flavor can never satisfy the request, but another one can.
    f"{POD_SET}{BEYOND}, insufficient unused quota for nvidia.com/gpu in flavor big, 2 more needed": "waiting for 2 nvidia.com/gpu in queue team: 10 requested, 8 free",
    f"{POD_SET}{BEYOND}, insufficient unused quota for cpu in flavor big, 2 more needed": "waiting for 2 cpu in queue team: 20 requested, 18 free",
    # The same flavor lacks a second resource.
    f"{POD_SET}{BEYOND}, insufficient unused quota for cpu in flavor any, 2 more needed": "queue team: can never be admitted: it requests 10 nvidia.com/gpu, and the maximum is 8",
    # Kueue counts a later pod set together with the earlier ones.
    f"couldn't assign flavors to pod set master: insufficient unused quota for nvidia.com/gpu in flavor any, 1 more needed; {POD_SET}insufficient unused quota for nvidia.com/gpu in flavor any, 9 more needed": "waiting for 9 nvidia.com/gpu in queue team: 10 requested, 1 free",
    f"{POD_SET}{BEYOND}": "queue team: can never be admitted: it requests 10 nvidia.com/gpu, and the maximum is 8",
    UNCOUNTED: "queue team: can never be admitted: it requests more nvidia.com/gpu, and the maximum is 8",
    f"{POD_SET}resource nvidia.com/gpu unavailable in ClusterQueue": "queue team: can never be admitted: its queue has no quota for nvidia.com/gpu",
    "something new": "queue team: something new",
    "": "queue team: not admitted yet",
}


@pytest.mark.parametrize(("message", "text"), TEXTS.items())
def test_kueue_message_is_parsed_into_plain_text(message, text):
    line = waiting_line(job=gang(SUSPENDED, started=None), pod_groups=[workload(message)])
    assert line == f"{text} (suspended by a queue or a user)"


@pytest.mark.parametrize(
    ("initializers", "message", "text"),
    [
        ([KNOWN], f"{POD_SET}insufficient unused quota for cpu in flavor any, 4 more needed", "4 cpu in queue team: 21 requested, 17 free"),
        ([KNOWN], f"{POD_SET}insufficient unused quota for nvidia.com/gpu in flavor any, 4 more needed", "4 nvidia.com/gpu in queue team: 10 requested, 6 free"),
        # Kueue counted only the initializer, which is its first pod set.
        ([KNOWN], f"{OF_DATA}insufficient unused quota for cpu in flavor any, 500m more needed", "500m cpu in queue team: 21 requested, 500m free"),
        ([KNOWN, UNKNOWN], f"{POD_SET}insufficient unused quota for cpu in flavor any, 4 more needed", "4 cpu in queue team: 21 requested"),
    ],
)  # fmt: skip
def test_free_amount_takes_into_account_that_kueue_counts_initializers(initializers, message, text):
    job = gang(SUSPENDED, started=None, initializers=initializers)
    line = waiting_line(job=job, pod_groups=[workload(message)])
    assert line == f"waiting for {text} (suspended by a queue or a user)"


@pytest.mark.parametrize(
    ("held", "ahead", "position"),
    [
        (SILENT, None, ""),
        (SILENT, 0, ""),
        (SILENT, 1, "queue team: not admitted yet; 1 job ahead"),
        (workload(FULL), 0, f"{LACKS}; next in its queue"),
        (workload(FULL, PREEMPTED), 2, f"admitted before and evicted (Preempted); {LACKS}; 2 jobs ahead"),
    ],
)
def test_queue_position_is_shown_with_the_reason_or_if_other_jobs_are_ahead(held, ahead, position):
    observed = observe(gang(SUSPENDED, started=None), pod_groups=[held])
    placed = structs.replace(observed.pod_groups[0], ahead=ahead)
    assert placed.priority == (3 if held is SILENT else 0)
    observed = structs.replace(observed, pod_groups=(placed,))
    result, until = judge_with_expiry(observed, JudgingContext(), BEGAN)
    held_by = "suspended by a queue or a user"
    assert first_line(result) == (f"{position} ({held_by})" if position else held_by)
    # The queue position changes without a change of the job, so the verdict is valid for a shorter time.
    assert (until - BEGAN).total_seconds() == (600 if ahead is None else 20)


def test_workload_with_reserved_quota_waits_for_admission_checks():
    of_checks = {"kind": "Workload", "spec": {"queueName": "team"}, "admissionChecks": CHECKS}
    job = gang(SUSPENDED, started=None)
    for more in ([], [condition("Admitted", "False", message="The workload has no reservation")]):
        reserved = group("kueue.x-k8s.io", condition("QuotaReserved"), *more, **of_checks)
        line = waiting_line(job=job, pod_groups=[reserved])
        assert line.startswith(f"queue team: its quota is reserved, and it waits for a check: {NOT_READY} (")
    admitted = group("kueue.x-k8s.io", condition("QuotaReserved"), condition("Admitted"), **of_checks)
    assert "waits" not in verdict(job, pod_groups=[admitted]).info


@pytest.mark.parametrize(
    ("message", "cause", "hint"),
    [
        (POD_SET + BEYOND, "queue", TOO_MUCH),
        ("LocalQueue team doesn't exist", "invalid-config", "change the task"),
        ("LocalQueue team is inactive", "queue", WRONG),
        ("ClusterQueue cq not found", "queue", WRONG),
        ("ClusterQueue cq is stopped", "queue", "until an admin sets its stopPolicy to None"),
        ("ClusterQueue cq doesn't exist", "queue", WRONG),
        ("LocalQueue team is terminating or missing", "queue", WRONG),
        (POD_SET + "resource nvidia.com/gpu unavailable in ClusterQueue", "queue", WRONG),
        ("Workload namespace doesn't match ClusterQueue selector", "queue", WRONG),
    ],
)
def test_remedy_depends_on_whether_waiting_helps(message, cause, hint):
    result = verdict(gang(SUSPENDED, started=None), pod_groups=[workload(message)])
    assert (result.phase.value, result.cause and result.cause.value) == ("WAITING_FOR_RESOURCES", cause)
    assert hint in result.message.splitlines()[1]


@pytest.mark.parametrize(
    ("reason", "message", "gone", "hint"),
    [
        ("ExceedsMaxQuota", "x", True, TOO_MUCH),
        ("NoMatchingFlavor", "flavor any doesn't match node affinity", True, WRONG),
        ("Misconfigured", "x", True, WRONG),
        # The reason is that of the worst flavor; another one may have room.
        ("ExceedsMaxQuota", FULL, False, get_remedy(Cause.QUEUE)),
        # An admin may create the queue.
        ("Misconfigured", "ClusterQueue cq doesn't exist", False, WRONG),
        ("WaitingForQuota", "x", False, get_remedy(Cause.QUEUE)),
    ],
)
def test_kueue_reason_may_mark_the_wait_as_unsatisfiable(reason, message, gone, hint):
    held = workload(message, reason=reason)
    judged = verdict(gang(SUSPENDED, started=None), pod_groups=[held], now=70, rules=SOON)
    assert (judged.phase.value == "RETRYABLE_FAILED") is gone
    assert hint in judged.message.splitlines()[1]


@pytest.mark.parametrize(
    ("evicted", "reason", "gone"),
    [
        ([], "its Workload was deactivated", False),
        ([condition("Evicted", reason="Deactivated", message="It is off")], "It is off", False),
        ([condition("Evicted", reason="DeactivatedDueToRequeuingLimitExceeded", message=LIMIT)], LIMIT, True),
    ],
)
def test_deactivated_workload_waits_for_an_admin_or_another_attempt(evicted, reason, gone):
    out = {**workload(FULL, *evicted), "spec": INACTIVE_SPEC}
    job = gang(SUSPENDED, started=None)
    line, hint = verdict(job, pod_groups=[out]).message.splitlines()
    assert line == f"queue team: {reason} (suspended by a queue or a user)"
    assert "an admin has to set spec.active of its Workload to true" in hint
    assert (verdict(job, pod_groups=[out], now=70, rules=SOON).phase.value == "RETRYABLE_FAILED") is gone


def test_deactivated_workload_has_no_queue_position_and_no_wait_after_its_end():
    out = {**workload(FULL), "spec": INACTIVE_SPEC}
    observed = observe(gang(), pod_groups=[out, workload(FULL)])
    assert [registry.has_queue_position(each) for each in observed.pod_groups] == [False, True]
    over = group("kueue.x-k8s.io", condition("Finished"), kind="Workload", spec=INACTIVE_SPEC)
    assert "waits" not in verdict(gang(started=None), pod_groups=[over]).info


@pytest.mark.parametrize(
    ("fields", "pods", "warned"),
    [
        ({"queue": "team"}, [], True),
        ({"queue": "team"}, [*members()[:4], running("worker-3")], True),
        ({"queue": "team", "schedulerName": "scheduler-plugins-scheduler"}, [], False),
        ({"queue": "team", "workers": 0}, [], False),
        ({"queue": "team"}, [running(f"worker-{n}") for n in range(5)], False),
    ],
)
def test_job_with_only_kueue_has_a_warning_about_a_partial_start(fields, pods, warned):
    waiting = verdict(gang(**fields), *pods, pod_groups=[group("kueue.x-k8s.io", kind="Workload")])
    assert (IN_PART in waiting.message) is warned
    ran = verdict(gang(RUNNING, **fields), *pods, pod_groups=[group("kueue.x-k8s.io", kind="Workload")])
    assert IN_PART not in ran.message

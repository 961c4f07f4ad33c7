# ruff: noqa: E501, PLR0917 - a row a case
"""Tests for the verdict on observed states, with one row per case."""

from datetime import timedelta

import pytest
from cluster import (
    BEGAN,
    FAILED,
    RUNNING,
    build_ended_pod,
    condition,
    error_file,
    job,
    running,
    short,
    unplaced,
    verdict,
    waiting,
)

from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging import messages
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_status import JobStatus
from backend_plugin.core.judging.verdict import is_retryable
from backend_plugin.core.judging.verdict_rules import judge_status
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

LACKING = "0/12 nodes are available: 3 Insufficient nvidia.com/gpu, 9 node(s) had untolerated taint {x: y}. preemption: 0/12 no."
SUSPENDED = condition("Suspended", reason="PyTorchJobSuspended")
HELD = {"kind": "Workload", "spec": {"queueName": "ml"}, "status": {"conditions": [condition("QuotaReserved", "False", reason="Pending", message="couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor f, 2 more needed")]}}  # fmt: skip


@pytest.mark.parametrize(
    ("generation", "pods", "expected"),
    [
        (2, (running("master-0"), unplaced("worker-0", LACKING)), ("WAITING_FOR_RESOURCES", "Unschedulable")),
        (4, (running("master-0"), unplaced("worker-0", LACKING)), ("INITIALIZING", "Unschedulable")),
        (2, (waiting("master-0", "ContainerCreating"),), ("INITIALIZING", "ContainerCreating")),
    ],
    ids=["first admission", "second admission", "a pod was lost"],
)
def test_job_resumed_by_a_queue_waits_for_nodes_until_all_pods_were_placed(generation, pods, expected):
    resumed = job(condition("Suspended", "False", reason="PyTorchJobResumed"), started=1)
    resumed["metadata"]["generation"] = generation
    assert short(verdict(resumed, *pods, now=150))[:2] == expected


def limited(**seconds) -> JudgingContext:
    return JudgingContext(deadlines=Deadlines(**seconds))


def rules(**judging) -> JudgingContext:
    return JudgingContext(judging=JudgingSettings(**judging))


MINUTE = timedelta(minutes=1)
UNSEEN = job(started=None)
RUNS = (running("master-0"), running("worker-0"))
PATIENCE = {
    "the task's own queue timeout": (job(SUSPENDED, started=None), (), {}, limited(queue_seconds=60), 61, ("RETRYABLE_FAILED", "Suspended", "queue")),
    "the task's own patience for nodes": (job(), (unplaced("master-0", LACKING),), {}, limited(pending_seconds=60), 63, ("RETRYABLE_FAILED", "Unschedulable", "unschedulable")),
    "which counts from the queue's word": (job(), (unplaced("master-0", LACKING),), {"pod_groups": [HELD]}, limited(pending_seconds=60), 63, ("WAITING_FOR_RESOURCES", "Pending", "queue")),
    "which is not yet over": (job(), (unplaced("master-0", LACKING),), {}, limited(pending_seconds=60), 62, ("WAITING_FOR_RESOURCES", "Unschedulable", "unschedulable")),
    "which is not for starting": (job(), (waiting("master-0", "ContainerCreating"), waiting("worker-0", "ContainerCreating")), {}, limited(pending_seconds=60), 999, ("INITIALIZING", "ContainerCreating", None)),
    "the task's own deadline": (job(RUNNING), RUNS, {}, limited(active_seconds=60), 66, ("FAILED", "DeadlineExceeded", "user-error")),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "more", "rules", "now", "expected"), PATIENCE.values(), ids=PATIENCE)
def test_timeout_changes_the_verdict(job, pods, more, rules, now, expected):
    assert short(verdict(job, *pods, rules=rules, now=now, **more)) == expected


def test_unknown_cause_or_state_raises_an_assertion_error():
    with pytest.raises(AssertionError):
        is_retryable("new")
    with pytest.raises(AssertionError):
        judge_status(JobStatus(state="new", job=None), JudgingContext(), BEGAN)


@pytest.mark.parametrize(("code", "means"), [("17", 17), ("-9", 137)])
def test_exit_code_in_a_torch_agent_report_has_the_usual_meaning(code, means):
    report = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        f"Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_00:01:29\n  host      : h\n"
        f"  rank      : 1 (local_rank: 1)\n  exitcode  : {code} (pid: 7)\n  error_file: <N/A>\n  traceback : x"
    )
    for known, is_known in ((rules(exit_codes={means: Cause.INVALID_CONFIG}), True), (rules(), False)):
        files = [error_file(exception=report)]
        found = verdict(job(FAILED), build_ended_pod("worker-0", 1), error_files=files, rules=known)
        assert (found.cause is Cause.INVALID_CONFIG) is is_known


def elastic(*conditions, least: int) -> dict:
    made = job(*conditions, workers=2)
    made["spec"]["pytorchReplicaSpecs"].pop("Master")
    made["spec"]["elasticPolicy"] = {"minReplicas": least, "maxReplicas": 2}
    return made


PULLING = waiting("worker-1", "ImagePullBackOff", "m")
WITHOUT = {
    "it trains with fewer": (elastic(RUNNING, least=1), (running("worker-0"), PULLING), "RUNNING"),
    "it waits for a node with fewer": (elastic(RUNNING, least=1), (running("worker-0"), unplaced("worker-1", LACKING)), "RUNNING"),
    "it needs them all": (elastic(RUNNING, least=2), (running("worker-0"), PULLING), "RETRYABLE_FAILED"),
    "none trains": (elastic(RUNNING, least=1), (PULLING,), "RETRYABLE_FAILED"),
    "none has ever trained": (elastic(least=1), (running("worker-0"), PULLING), "RETRYABLE_FAILED"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "phase"), WITHOUT.values(), ids=WITHOUT)
def test_elastic_job_does_not_time_out_for_an_optional_replica(job, pods, phase):
    assert verdict(job, *pods, rules=rules(queue_timeout=MINUTE), now=9_999).phase.value == phase


def test_duration_is_formatted_for_users():
    texts = {
        0: "0 s",
        90: "90 s",
        119: "119 s",
        180: "3 min",
        3_600: "1 h",
        9_000: "2 h 30 min",
        3_661: "3661 s",
    }
    assert {each: messages.format_duration(timedelta(seconds=each)) for each in texts} == texts

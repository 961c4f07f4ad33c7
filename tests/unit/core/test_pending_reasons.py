# ruff: noqa: E501, PLR0917 - a row a case
"""Tests for the messages about pending reasons, for timeouts and for verdicts on observed states."""

from datetime import timedelta

import pytest
from cluster import BEGAN, FAILED, RUNNING, at, condition, job, observe, short, verdict
from cluster_pods import TORCHRUN, anew, build_ended_pod, error_file, going, pod, running, unplaced, waiting
from waiting_gang import build_waiting_members, first_line, gang, group

from backend_plugin.core import settings
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging import messages
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_status import JobStatus
from backend_plugin.core.judging.verdict import is_retryable
from backend_plugin.core.judging.verdict_rules import judge_status
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

RESTARTING = condition("Restarting", message="")
REFUSAL = 'pods "j-worker-3" is forbidden: exceeded quota: gpu'
LEFT = [running(name) for name in ("master-0", "worker-0", "worker-1", "worker-2")]
FULL = "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor any, 4 more needed"
BEYOND = "insufficient quota for cpu in flavor any, previously considered podsets requests (2) + current podset request (8) > maximum capacity (8)"
NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."
LACKING = "0/12 nodes are available: 3 Insufficient nvidia.com/gpu, 9 node(s) had untolerated taint {x: y}. preemption: 0/12 no."
SUSPENDED = condition("Suspended", reason="PyTorchJobSuspended")
HELD = {"kind": "Workload", "spec": {"queueName": "ml"}, "status": {"conditions": [condition("QuotaReserved", "False", reason="Pending", message="couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor f, 2 more needed")]}}  # fmt: skip


@pytest.mark.parametrize(
    "reason", ["pod has unbound immediate PersistentVolumeClaims", 'persistentvolumeclaim "data" not found']
)
def test_pod_without_a_volume_has_a_remedy_for_the_claim(reason):
    message = f"0/1 nodes are available: {reason}. preemption: 0/1 nodes are available."
    assert "kubectl describe persistentvolumeclaims" in verdict(job(), unplaced("master-0", message)).message


def test_very_long_message_is_parsed_from_its_start():
    message = "0/3 nodes are available: 3 Insufficient cpu." + " x" * 500_000
    unscheduled = unplaced("master-0", message)
    assert [len(pod.scheduled.message) for pod in observe(None, unscheduled).pods] == [4_000]
    assert "3 lack cpu" in verdict(job(started=None), unscheduled).message


def test_pending_reason_of_members_precedes_that_of_their_pod_group():
    members = [unplaced(name, "resource gap: map[gpu:{{4 0} x}].") for name in ("master-0", "worker-0")]
    result = verdict(job(), *members, pod_groups=[group("", phase="Scheduling")])
    assert short(result) == ("WAITING_FOR_RESOURCES", "Unschedulable", "unschedulable")
    assert result.message.splitlines()[1].startswith("PodGroup j: ")


@pytest.mark.parametrize(("name", "cause"), [("init-pytorch", None), ("download", "user-error")])
def test_repeatedly_failing_init_container_has_a_pending_reason(name, cause):
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    crashing = {"name": name, "restartCount": 3, "state": state}
    failing = pod("worker-0", "Pending", initContainerStatuses=[crashing])
    result = verdict(job(RUNNING), running("master-0"), failing)
    assert (result.phase.value, result.cause and result.cause.value) == ("INITIALIZING", cause)
    assert result.message.startswith(f"worker-0 starting, CrashLoopBackOff: init container {name}: back-off")


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, ("RETRYABLE_FAILED", "CrashLoopBackOff", "oom-host")),
        ({"exitCode": 127, "reason": "Error"}, ("FAILED", "CrashLoopBackOff", "invalid-config")),
        ({"exitCode": 17, "reason": "Error"}, ("RETRYABLE_FAILED", "CrashLoopBackOff", "node-lost")),
    ],
)
def test_crash_loop_has_the_cause_of_its_last_termination(ended, expected):
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    init = {"name": "copy", "restartCount": 9, "state": state, "lastState": {"terminated": ended}}
    looping = pod("worker-0", "Pending", initContainerStatuses=[init])
    rules = JudgingContext(judging=JudgingSettings(exit_codes={17: Cause.NODE_LOST}))
    assert short(verdict(job(), running("master-0"), looping, rules=rules, now=9_999)) == expected


def refused(seconds):
    last = None if seconds is None else at(seconds)
    return {"type": "Warning", "reason": "FailedCreatePod", "message": REFUSAL, "lastTimestamp": last}


def elastic():
    job = gang(RUNNING)
    job["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 5}
    return job


@pytest.mark.parametrize("job", [gang(RUNNING), elastic(), gang(RESTARTING)])
@pytest.mark.parametrize("lost", [[], [going(running("worker-3"), 140)]])
def test_running_job_reports_that_a_lost_replica_cannot_be_created(job, lost):
    result = verdict(job, *LEFT, *lost, events=[refused(150)])
    assert (result.phase.value, result.cause and result.cause.value) == ("RUNNING", "quota-exceeded")
    assert first_line(result) == f"its pods cannot be created: {REFUSAL} (4 of 5 replicas ready)"
    assert result.message.splitlines()[1].startswith("the namespace's ResourceQuota")


@pytest.mark.parametrize(
    ("pods", "refusal"),
    [
        # All replicas exist.
        ([*LEFT, anew(running("worker-3"))], refused(165)),
        # The failed creation precedes the first full set.
        (LEFT, refused(0)),
        # Another replica was created after the failed creation.
        ([*LEFT[:3], anew(running("worker-2"))], refused(150)),
        # The replica was created after the failed creation, and is being deleted.
        ([*LEFT, going(anew(running("worker-3")), 180)], refused(150)),
        # The event has no time.
        (LEFT, refused(None)),
        (LEFT, {**refused(150), "type": "Normal"}),
        (LEFT, {**refused(150), "reason": "Other"}),
    ],
)
def test_past_creation_failure_is_not_reported(pods, refusal):
    result = verdict(gang(RUNNING), *pods, events=[refusal])
    assert "waits" not in result.info
    assert result.phase.value == "RUNNING"


def rules(deadlines=None, **timeouts):
    judging = settings.read({"kfpytorch": {"timeouts": timeouts}}).judging
    return JudgingContext(judging=judging, deadlines=deadlines or Deadlines())


def queued(message):
    held = condition("QuotaReserved", "False", reason="Pending", message=message)
    workload = group("kueue.x-k8s.io", held, kind="Workload", spec={"queueName": "team"})
    return gang(condition("Suspended"), started=None), [], [workload]


OF_CAUSES = {"queue": "0", "unschedulable": "2m", "unsatisfiable": "1m"}
BY_CAUSE = {"queue-timeout": "10m", "queue-timeout-by-cause": OF_CAUSES}
OTHER_CAUSE = {"queue-timeout": "10m", "queue-timeout-by-cause": {"quota-exceeded": "1m"}}
OWN = rules(Deadlines(queue_seconds=30), **BY_CAUSE)
NO_QUEUE = "LocalQueue team doesn't exist"


@pytest.mark.parametrize(
    ("message", "rules", "last", "phase"),
    [
        (BEYOND, rules(**BY_CAUSE), 60, "RETRYABLE_FAILED"),
        (NO_NODE, rules(**BY_CAUSE), 120, "RETRYABLE_FAILED"),
        (NO_QUEUE, rules(**{"queue-timeout-by-cause": {"invalid-config": "1m"}}), 60, "FAILED"),
        # A cause without its own timeout has the usual one.
        (FULL, rules(**OTHER_CAUSE), 600, "RETRYABLE_FAILED"),
        # The timeout of the task's author takes precedence.
        (FULL, OWN, 30, "RETRYABLE_FAILED"),
        (FULL, rules(**BY_CAUSE), 100_000, "WAITING_FOR_RESOURCES"),
    ],
)
def test_queue_timeout_depends_on_the_cause_of_the_wait(message, rules, last, phase):
    unplaced = gang(), build_waiting_members(NO_NODE), []
    job, pods, groups = unplaced if message == NO_NODE else queued(message)
    early, late = (verdict(job, *pods, pod_groups=groups, now=last + more, rules=rules) for more in (-10, 10))
    assert (early.phase.value, late.phase.value) == ("WAITING_FOR_RESOURCES", phase)


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


def build_rules(**judging) -> JudgingContext:
    return JudgingContext(judging=JudgingSettings(**judging))


MINUTE = timedelta(minutes=1)
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
    report = TORCHRUN.format(code=code, trace="x")
    for codes, is_known in (({means: Cause.INVALID_CONFIG}, True), ({}, False)):
        known, files = build_rules(exit_codes=codes), [error_file(exception=report)]
        found = verdict(job(FAILED), build_ended_pod("worker-0", 1), error_files=files, rules=known)
        assert (found.cause is Cause.INVALID_CONFIG) is is_known


def build_elastic_job(*conditions, least: int) -> dict:
    made = job(*conditions, workers=2)
    made["spec"]["pytorchReplicaSpecs"].pop("Master")
    made["spec"]["elasticPolicy"] = {"minReplicas": least, "maxReplicas": 2}
    return made


PULLING = waiting("worker-1", "ImagePullBackOff", "m")
WITHOUT = {
    "it trains with fewer": (build_elastic_job(RUNNING, least=1), (running("worker-0"), PULLING), "RUNNING"),
    "it needs them all": (build_elastic_job(RUNNING, least=2), (running("worker-0"), PULLING), "RETRYABLE_FAILED"),
    "none trains": (build_elastic_job(RUNNING, least=1), (PULLING,), "RETRYABLE_FAILED"),
    "none has ever trained": (build_elastic_job(least=1), (running("worker-0"), PULLING), "RETRYABLE_FAILED"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "phase"), WITHOUT.values(), ids=WITHOUT)
def test_elastic_job_does_not_time_out_for_an_optional_replica(job, pods, phase):
    assert verdict(job, *pods, rules=build_rules(queue_timeout=MINUTE), now=9_999).phase.value == phase


def test_duration_is_formatted_for_users():
    texts = {0: "0 s", 119: "119 s", 180: "3 min", 3_600: "1 h", 9_000: "2 h 30 min", 3_661: "3661 s"}
    assert {each: messages.format_duration(timedelta(seconds=each)) for each in texts} == texts

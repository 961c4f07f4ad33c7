"""Tests for the messages about pending reasons."""

import pytest
from cluster import RUNNING, condition, job, pod, running, short, unplaced, verdict
from waiting_gang import group

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause


@pytest.mark.parametrize(
    "reason", ["pod has unbound immediate PersistentVolumeClaims", 'persistentvolumeclaim "data" not found']
)
def test_pod_without_a_volume_has_a_remedy_for_the_claim(reason):
    message = f"0/1 nodes are available: {reason}. preemption: 0/1 nodes are available."
    result = verdict(job(), unplaced("master-0", message))
    assert "kubectl describe persistentvolumeclaims" in result.message


def test_pending_reason_of_members_precedes_that_of_their_pod_group():
    members = [unplaced(name, "resource gap: map[gpu:{{4 0} x}].") for name in ("master-0", "worker-0")]
    result = verdict(job(), *members, pod_groups=[group("", phase="Scheduling")])
    assert short(result) == ("WAITING_FOR_RESOURCES", "Unschedulable", "unschedulable")
    assert result.message.splitlines()[1].startswith("PodGroup j: ")


def test_scheduled_pod_group_of_kubernetes_has_no_pending_reason():
    scheduled = group("scheduling.k8s.io", condition("PodGroupInitiallyScheduled"))
    assert "waits" not in verdict(job(started=None), pod_groups=[scheduled]).info


@pytest.mark.parametrize(("name", "cause"), [("init-pytorch", None), ("download", "user-error")])
def test_repeatedly_failing_init_container_has_a_pending_reason(name, cause):
    crashing = {
        "name": name,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
    }
    result = verdict(
        job(RUNNING), running("master-0"), pod("worker-0", "Pending", initContainerStatuses=[crashing])
    )
    assert (result.phase.value, result.cause and result.cause.value) == ("INITIALIZING", cause)
    assert result.message.startswith(f"worker-0 starting, CrashLoopBackOff: init container {name}: back-off")


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, ("RETRYABLE_FAILED", "CrashLoopBackOff", "oom-host")),
        ({"exitCode": 2, "reason": "Error"}, ("FAILED", "CrashLoopBackOff", "user-error")),
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

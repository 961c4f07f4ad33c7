"""Tests for the messages about pending reasons."""

import pytest
from cluster import RUNNING, condition, job, pod, running, short, unplaced, verdict, waiting
from waiting_gang import group

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause


def test_replicas_with_the_same_pending_reason_share_a_line():
    message = "0/1 nodes are available: 1 Insufficient cpu."
    workers = [unplaced(f"worker-{index}", message) for index in range(11)]
    result = verdict(job(workers=11), *workers, unplaced("master-0", ""))
    assert result.message.splitlines()[:2] == [
        "worker-0, worker-1, worker-2, worker-3 and 7 more waiting for a node: no node of 1 fits: 1 lack cpu"
        " (0 of 12 replicas ready)",
        "master-0 waiting for a node: no node has been found",
    ]


@pytest.mark.parametrize(
    "reason", ["pod has unbound immediate PersistentVolumeClaims", 'persistentvolumeclaim "data" not found']
)
def test_pod_without_a_volume_has_a_remedy_for_the_claim(reason):
    message = f"0/1 nodes are available: {reason}. preemption: 0/1 nodes are available."
    result = verdict(job(), unplaced("master-0", message))
    assert "kubectl describe persistentvolumeclaims" in result.message


def test_restarting_container_is_in_the_details_of_a_running_job():
    crashed = {
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    result = verdict(job(RUNNING), running("master-0"), pod("worker-0", container=crashed))
    assert [line.partition(":")[0] for line in result.info["waits"]] == [
        "worker-0 restarting, CrashLoopBackOff"
    ]
    assert (result.phase.value, result.info["ready"], result.info["replicas"]) == ("RUNNING", 2, 2)


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


def test_pod_group_with_all_members_placed_is_no_pending_reason():
    late = group(
        "", condition("Unschedulable", reason="NotEnoughResources", message="2/2 tasks unschedulable")
    )
    members = [waiting(name, "ContainerCreating") for name in ("master-0", "worker-0")]
    result = verdict(job(), *members, pod_groups=[late])
    assert (result.phase.value, result.cause) == ("INITIALIZING", None)
    assert result.message.splitlines() == [
        "master-0, worker-0 starting, ContainerCreating: placed; the image, the volumes and the network are"
        " being prepared (0 of 2 replicas ready)"
    ]

# ruff: noqa: E501 - a row a case
"""Tests for the messages about pending reasons."""

import pytest
from cluster import RUNNING, condition, job, pod, running, short, verdict, waiting

from backend_plugin.core.judging_context import JudgingContext
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

UNSCHEDULABLE = {
    "0/12 nodes are available: 3 Insufficient nvidia.com/gpu, 9 node(s) had untolerated taint {a: b}. preemption: 0/12 nodes are available.": "no node of 12 fits: 3 lack nvidia.com/gpu; 9 had untolerated taint {a: b}",
    "0/3 nodes are available: 3 Insufficient cpu, 3 Insufficient memory.": "no node of 3 fits: 3 lack cpu; 3 lack memory",
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.": "no node of 3 fits: pod has unbound immediate PersistentVolumeClaims",
    "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.": "no node of 2 fits: 1 lack cpu; 2 lack memory; no node has that much, even when it is empty",
    "0/2 nodes are available: 2 Insufficient memory. preemption: 0/2 nodes are available: 1 Preemption is not helpful for scheduling, 1 No preemption victims found for incoming pod.": "no node of 2 fits: 2 lack memory",
    "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.": "no node of 2 fits: 1 lack cpu; 1 were unschedulable",
    "something else": "something else",
    "": "no node has been found",
}


def group(*conditions, kind="PodGroup", phase="", api="", **status):
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "g"},
        "spec": {"queue": "ml"},
        "status": {"phase": phase, "conditions": list(conditions), **status},
    }


KAI = [{"type": "UnschedulableOnNodePool", "reasons": [{"reason": "OverLimit", "message": "over its limit"}]}]
GROUPS = {
    "volcano": (
        group(
            condition("Unschedulable", reason="NotEnoughResources", message="2/2 tasks in gang unschedulable")
        ),
        "NotEnoughResources",
        "queue ml: 2 of 2 members of its gang cannot be placed",
    ),
    "volcano, not admitted": (
        group(phase="Pending", api="scheduling.volcano.sh/v1beta1"),
        "Pending",
        "queue ml: the group is not admitted yet",
    ),
    "co-scheduling": (
        group(phase="Scheduling", api="scheduling.x-k8s.io/v1alpha1"),
        "Scheduling",
        "PodGroup g: the group waits for its members to be placed",
    ),
    "in-tree": (
        group(condition("PodGroupInitiallyScheduled", "False", reason="Unschedulable", message="m")),
        "Unschedulable",
        "queue ml: m",
    ),
    "kueue": (
        group(condition("Admitted", "False", message="LocalQueue q is stopped"), kind="Workload"),
        "Admitted",
        "queue ml: LocalQueue q is stopped",
    ),
    "kai": (group(schedulingConditions=KAI), "OverLimit", "queue ml: over its limit"),
}


def test_a_group_of_kubernetes_itself_that_was_scheduled_says_nothing():
    scheduled = group(condition("PodGroupInitiallyScheduled"), api="scheduling.k8s.io/v1beta1")
    assert "waits" not in verdict(job(started=None), pod_groups=[scheduled]).info


@pytest.mark.parametrize(("name", "said"), [("init-pytorch", None), ("download", "user-error")])
def test_an_init_container_that_fails_again_and_again(name, said):
    crashing = {
        "name": name,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
    }
    told = verdict(
        job(RUNNING), running("master-0"), pod("worker-0", "Pending", initContainerStatuses=[crashing])
    )
    assert (told.phase.value, told.cause and told.cause.value) == ("INITIALIZING", said)
    assert told.message.startswith(f"worker-0 starting, CrashLoopBackOff: init container {name}: back-off")


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, ("RETRYABLE_FAILED", "CrashLoopBackOff", "oom-host")),
        ({"exitCode": 2, "reason": "Error"}, ("FAILED", "CrashLoopBackOff", "user-error")),
        ({"exitCode": 127, "reason": "Error"}, ("FAILED", "CrashLoopBackOff", "invalid-config")),
        ({"exitCode": 17, "reason": "Error"}, ("RETRYABLE_FAILED", "CrashLoopBackOff", "node-lost")),
    ],
)
def test_a_crash_loop_has_the_cause_of_its_last_end(ended, told):
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    init = {"name": "copy", "restartCount": 9, "state": state, "lastState": {"terminated": ended}}
    looping = pod("worker-0", "Pending", initContainerStatuses=[init])
    rules = JudgingContext(judging=JudgingSettings(exit_codes={17: Cause.NODE_LOST}))
    assert short(verdict(job(), running("master-0"), looping, rules=rules, now=9_999)) == told


def test_a_group_whose_members_are_all_placed_holds_nothing_back():
    late = group(condition("Unschedulable", reason="NotEnoughResources", message="2/2 tasks unschedulable"))
    members = [waiting(name, "ContainerCreating") for name in ("master-0", "worker-0")]
    told = verdict(job(), *members, pod_groups=[late])
    assert (told.phase.value, told.cause) == ("INITIALIZING", None)
    assert told.message.splitlines() == [
        "master-0, worker-0 starting, ContainerCreating: placed; the image, the volumes and the network are"
        " being prepared (0 of 2 replicas ready)"
    ]


def test_a_group_that_holds_nothing_back_is_not_waited_for():
    told = verdict(job(started=None), pod_groups=[group(phase="Inqueue")])
    assert (short(told), "waits" in told.info) == (("WAITING_FOR_RESOURCES", "AwaitingOperator", None), False)

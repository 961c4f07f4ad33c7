# ruff: noqa: E501 - a row a case
"""Tests for the messages about pending reasons."""

import pytest
from cluster import RUNNING, condition, job, pod, running, short, unplaced, verdict, waiting

from backend_plugin.core.judging_context import JudgingContext
from backend_plugin.core.pending_reasons import format_unschedulable
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


@pytest.mark.parametrize(("message", "said"), UNSCHEDULABLE.items())
def test_which_resource_and_how_many_nodes(message, said):
    assert format_unschedulable(message).said == said


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


@pytest.mark.parametrize(("group", "reason", "said"), GROUPS.values(), ids=GROUPS)
def test_what_a_gang_scheduler_says(group, reason, said):
    told = verdict(job(started=None), pod_groups=[group])
    assert (told.phase.value, told.reason) == ("WAITING_FOR_RESOURCES", reason)
    assert told.message.startswith(f"{said} (0 of 2 replicas ready)")


def test_a_group_of_kubernetes_itself_that_was_scheduled_says_nothing():
    scheduled = group(condition("PodGroupInitiallyScheduled"), api="scheduling.k8s.io/v1beta1")
    assert "waits" not in verdict(job(started=None), pod_groups=[scheduled]).info


def test_a_group_that_holds_nothing_back_says_nothing():
    told = verdict(
        job(),
        waiting("master-0", "ContainerCreating"),
        waiting("worker-0", "ContainerCreating"),
        pod_groups=[group(phase="Running")],
    )
    assert (told.phase.value, told.reason) == ("INITIALIZING", "ContainerCreating")


def test_replicas_that_wait_for_the_same_are_told_of_once():
    told = verdict(
        job(workers=11),
        *(unplaced(f"worker-{index}", "0/1 nodes are available: 1 Insufficient cpu.") for index in range(11)),
        unplaced("master-0", "m"),
    )
    assert told.message.splitlines() == [
        "worker-0, worker-1, worker-2, worker-3 and 7 more waiting for a node: no node of 1 fits: 1 lack cpu (0 of 12 replicas ready)",
        "master-0 waiting for a node: m",
        "request less, or what the nodes have: see `kubectl describe nodes`",
    ]


def test_yunikorn_tells_its_placeholders_only():
    placeholder = unplaced("x", "0/1 nodes are available: 1 Insufficient cpu.")
    placeholder["metadata"] = {"name": "tg-j-worker-abc"}
    ready = {
        "metadata": {"name": "tg-j-worker-def"},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    told = verdict(
        job(),
        pod("master-0", "Pending", node=""),
        pod("worker-0", "Pending", node=""),
        placeholder,
        ready,
        now=10,
    )
    assert told.phase.value == "WAITING_FOR_RESOURCES"
    assert told.message.splitlines()[0] == (
        "waiting for 1 of 2 places: no node of 1 fits: 1 lack cpu (0 of 2 replicas ready)"
    )
    assert told.info["details"] == ["0/1 nodes are available: 1 Insufficient cpu."]


def test_a_container_that_restarts_is_told_of_while_running():
    crashed = {
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    told = verdict(job(RUNNING), running("master-0"), pod("worker-0", container=crashed))
    assert told.info["waits"] == [
        "worker-0 restarting, CrashLoopBackOff: ended 4 times, the last with exit code 137 OOMKilled"
    ]
    assert (told.phase.value, told.info["ready"], told.info["replicas"]) == ("RUNNING", 2, 2)


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


def test_the_image_and_its_error_are_named():
    told = verdict(
        job(),
        waiting("master-0", "ErrImagePull", "manifest unknown"),
        waiting("worker-0", "ErrImagePull", "manifest unknown"),
        now=20,
    )
    assert told.message.splitlines() == [
        "master-0, worker-0 starting, ErrImagePull: image train:1: manifest unknown (0 of 2 replicas ready)",
        "check the image's name and tag, and that the nodes may pull it",
    ]


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


def test_waits_are_told_in_one_order():
    groups = [group(phase=phase) for phase in ("Pending", "PreScheduling")]
    told = {verdict(job(started=None), pod_groups=order).message for order in (groups, groups[::-1])}
    assert len(told) == 1


def test_a_group_whose_members_are_all_placed_holds_nothing_back():
    late = group(condition("Unschedulable", reason="NotEnoughResources", message="2/2 tasks unschedulable"))
    members = [waiting(name, "ContainerCreating") for name in ("master-0", "worker-0")]
    told = verdict(job(), *members, pod_groups=[late])
    assert (told.phase.value, told.cause) == ("INITIALIZING", None)
    assert told.message.splitlines() == [
        "master-0, worker-0 starting, ContainerCreating: placed; the image, the volumes and the network are"
        " being prepared (0 of 2 replicas ready)"
    ]


def test_what_the_members_say_is_told_before_what_the_group_says():
    members = [unplaced(name, "resource gap: map[gpu:{{4 0} x}].") for name in ("master-0", "worker-0")]
    told = verdict(job(), *members, pod_groups=[group(phase="Scheduling")])
    assert short(told) == ("WAITING_FOR_RESOURCES", "Unschedulable", "unschedulable")
    assert told.message.splitlines()[1] == "PodGroup g: the group waits for its members to be placed"


def test_a_group_that_holds_nothing_back_is_not_waited_for():
    told = verdict(job(started=None), pod_groups=[group(phase="Inqueue")])
    assert (short(told), "waits" in told.info) == (("WAITING_FOR_RESOURCES", "AwaitingOperator", None), False)

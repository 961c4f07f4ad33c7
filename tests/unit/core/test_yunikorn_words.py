# ruff: noqa: E501 - a row a text
"""What YuniKorn says of a gang that waits, and does in silence; and what is told of it."""

import json

import pytest
from cluster import condition, pod, running, verdict
from waiting_gang import event, first_line, gang, holder, members, waiting_line

from backend_plugin.core.scheduling import asks

NO_ROOM = condition(
    "PodScheduled",
    "False",
    since=2,
    reason="Unschedulable",
    message="request is waiting for cluster resources become available",
)
PLACED = [holder(f"{index}", role, node="n1") for index, role in enumerate(["master", "worker", "worker"])]
FULL = (
    "Request 'u-1' does not fit in queue 'root.team' (requested map[memory:1073741824 nvidia.com/gpu:2 pods:1 vcore:1000],"
    " available map[memory:1095216660480 nvidia.com/gpu:0 pods:1996 vcore:500])"
)


def test_only_those_who_hold_its_places_are_told_why_it_waits():
    waiting = [holder("x", "worker", NO_ROOM), holder("y", "worker", NO_ROOM)]
    line = waiting_line(*members(), *PLACED, *waiting, job=gang(queue="root.team"))
    assert line == "waiting for 4 nvidia.com/gpu in queue root.team: 10 asked, 6 held (0 of 5 replicas ready)"


def test_what_a_queue_lacks_is_in_an_event_only():
    waiting = [holder("x", "worker"), holder("y", "worker")]
    events = [
        event(FULL, name="tg-j-worker-x", reason="Informational"),
        event("y", name="tg-j-worker-y"),
        event(FULL.replace("root.team", "root.other"), name="tg-j-worker-of-another"),
    ]
    told = verdict(gang(), *members(), *PLACED, *waiting, events=events)
    assert (told.phase.value, first_line(told)) == (
        "WAITING_FOR_RESOURCES",
        "waiting for 8 cpu (20 asked, 12 held) and 4 nvidia.com/gpu (10 asked, 6 held) in queue root.team (0 of 5 replicas ready)",
    )


def test_devices_that_are_all_held_are_not_waited_for():
    job = gang()
    said = json.loads(job["metadata"]["annotations"][asks.ANNOTATION])
    del said["roles"][1]["requests"]["nvidia.com/gpu"]
    job["metadata"]["annotations"] = {asks.ANNOTATION: json.dumps(said)}
    line = waiting_line(*members(), *PLACED, holder("x", "worker", NO_ROOM), job=job)
    assert line.startswith("waiting for 1 of 4 places: ")


def test_of_a_job_that_says_nothing_of_its_gang_the_places_are_counted():
    job = gang()
    del job["metadata"]["annotations"]
    waiting = [holder("x", "worker", NO_ROOM)]
    assert waiting_line(*members(), *PLACED, *waiting, job=job) == (
        "waiting for 1 of 4 places: neither its queue nor a node has room for it (0 of 5 replicas ready)"
    )
    silent = [holder("x", "worker")]
    assert waiting_line(*members(), *PLACED, *silent, job=job) == (
        "waiting for 1 of 4 places: their pods have no node yet (0 of 5 replicas ready)"
    )


def test_a_place_whose_image_cannot_be_pulled_is_told_of():
    container = {
        "name": "pause",
        "image": "pause:3.7",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}},
    }
    stuck = holder("x", "worker", condition("PodScheduled"), node="n1")
    stuck["status"] = {"phase": "Pending", "containerStatuses": [container]}
    told = verdict(gang(), *members(), *PLACED, stuck, now=100)
    assert (told.reason, first_line(told)) == (
        "ErrImagePull",
        "image pause:3.7: denied (0 of 5 replicas ready)",
    )


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "Task t is skipped from scheduling because the queue quota has been exceed",
            "its queue has no room for it",
        ),
        (
            "Task ns/p is pending for the requested resources become available",
            "neither its queue nor a node has room for it",
        ),
    ],
)
def test_a_pod_outside_of_a_gang_is_told_itself(message, said):
    lonely = pod("master-0", "Pending", node="", conditions=[{**NO_ROOM, "message": message}])
    told = verdict(gang(workers=0), lonely)
    assert first_line(told) == f"master-0 waiting for a node: {said} (0 of 1 replicas ready)"


def test_a_user_may_have_used_up_what_a_queue_gives_one():
    message = FULL.replace("does not fit in queue 'root.team'", "exceeds the available user quota")
    lonely = pod("master-0", "Pending", node="", conditions=[{**NO_ROOM, "message": message}])
    told = verdict(gang(workers=0), lonely)
    assert first_line(told) == (
        "master-0 waiting for a node: waiting for cpu (1 asked, 500m free) and nvidia.com/gpu (2 asked, 0 free)"
        " in the cluster (0 of 1 replicas ready)"
    )


REJECTED = "queue root.small cannot fit application j: task group request map[nvidia.com/gpu:10] larger than max queue allocation map[nvidia.com/gpu:8]"
FAILED = "Application j scheduling failed, reason: ApplicationRejected: " + REJECTED


def test_members_that_came_after_its_rejection_wait_no_longer():
    rejected = pod(
        "master-0",
        "Failed",
        node="",
        reason="ApplicationRejected",
        message=" queue root.small cannot fit application j",
    )
    late = members()[1:]
    told = verdict(
        gang(), rejected, *late, events=[event(FAILED, reason="ApplicationFailed", type="Warning")]
    )
    assert (told.phase.value, told.reason) == ("FAILED", "ApplicationRejected")
    assert first_line(told) == f"its scheduler has rejected it: {REJECTED}"
    cut = verdict(gang(), rejected, *late)
    # Until the event comes that says all.
    assert cut.phase.value == "WAITING_FOR_RESOURCES"
    assert first_line(cut).startswith(
        "its scheduler has rejected it: queue root.small cannot fit application j ("
    )


def test_what_is_cut_short_on_a_pod_is_told_in_full():
    message = " queue root.small cannot fit application j"
    ends = [
        pod(f"{name}", "Failed", node="", reason="ApplicationRejected", message=message)
        for name in ("master-0", "worker-0")
    ]
    failed = gang(condition("Failed", message="failed"), workers=1)
    told = verdict(failed, *ends, events=[event(FAILED, reason="ApplicationFailed", type="Warning")])
    assert first_line(told) == f"master-0 failed: ApplicationRejected: {REJECTED} (config)"
    assert first_line(verdict(failed, *ends)) == f"master-0 failed: ApplicationRejected:{message} (config)"


@pytest.mark.parametrize(
    ("action", "message", "said"),
    [
        (
            "GangSchedulingFailed",
            "Application j resuming as non-gang application (SOFT)",
            "it is no gang any more",
        ),
        (
            "PlaceholderCreateFailed",
            "Application j fall back to normal scheduling",
            "it is no gang: its scheduler could not make",
        ),
        (
            "TaskGroupsError",
            "unable to get taskGroups for pod, reason: x",
            "it is no gang: its scheduler cannot read",
        ),
        (
            "X",
            "Task group 'w' in application 'j': allocation resources 'a' are not matching placeholder 'b' allocation with ID 'c'",
            "a pod asks for something else than what was held for it",
        ),
    ],
)
def test_what_it_gives_up_in_silence_is_said_aloud(action, message, said):
    job = gang(condition("Running"), workers=0)
    told = verdict(job, running("master-0"), events=[event(message, reason="GangScheduling", action=action)])
    assert told.phase.value == "RUNNING"
    (note,) = told.info["notes"]
    assert note.startswith(said)
    assert note.endswith(f"({message})")
    assert told.message.splitlines()[1:] == [note]
    wordless = verdict(job, running("master-0"), events=[event("", reason=action)])
    assert ("notes" in wordless.info) is (action != "X")

"""The kubelet's events when containers start and end."""

import pytest
from kept_objects import pod, stored

from backend_plugin.embedded import pod_transitions

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 1}}


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


def status(state, restarts=0, **more):
    return {"containerStatuses": [{"name": "pytorch", "state": state, "restartCount": restarts, **more}]}


def list_events(before, after):
    manifest = {**stored(pod(), "u"), "status": before}
    return [
        (each["reason"], each["message"], each["type"] == "Warning")
        for each in pod_transitions.iter_change_events(manifest, after)
    ]


UNSTARTED = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}}
NOT_STARTED = ("Failed", "Error: no such file", True)
BACK_OFF = ("BackOff", "Back-off restarting failed container pytorch in pod p_a(u)", True)
STARTED = ("Started", "Started container pytorch", False)
INIT_STARTED = ("Started", "Started container init-pytorch", False)
PULL_BACK_OFF = ("BackOff", 'Back-off pulling image "x"', False)
NO_IMAGE = ("Failed", "Error: no venv for x", True)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, status(waiting("ContainerCreating")), []),
        (status(waiting("ContainerCreating")), status(RUNNING), [STARTED]),
        ({}, status(ENDED), [STARTED]),
        (status(waiting("ContainerCreating")), status(UNSTARTED), [NOT_STARTED]),
        (status(UNSTARTED), status(waiting("CrashLoopBackOff"), lastState=UNSTARTED), [BACK_OFF]),
        (status(waiting("CrashLoopBackOff"), lastState=ENDED), status(UNSTARTED, 1), [NOT_STARTED]),
        # A late update: the container was started and has ended in between.
        ({}, status(waiting("CrashLoopBackOff"), lastState=UNSTARTED), [NOT_STARTED, BACK_OFF]),
        (status(UNSTARTED), status(RUNNING, 1, lastState=UNSTARTED), [STARTED]),
        (status(RUNNING), status(ENDED), []),
        (status(RUNNING), status(RUNNING, 1), [STARTED]),
        (status(ENDED), status(RUNNING, 1), [STARTED]),
        (status(RUNNING), status(waiting("CrashLoopBackOff"), 0), [BACK_OFF]),
        (status(waiting("CrashLoopBackOff")), status(waiting("CrashLoopBackOff")), []),
        ({}, status(waiting("ErrImagePull", "no venv for x"), image="x"), [NO_IMAGE]),
        ({}, status(waiting("ImagePullBackOff"), image="x"), [PULL_BACK_OFF]),
        ({}, {"initContainerStatuses": [{"name": "init-pytorch", "state": RUNNING}]}, [INIT_STARTED]),
    ],
)  # fmt: skip
def test_event_is_emitted_for_each_container_state_change(before, after, expected):
    assert list_events(before, after) == expected


def test_running_containers_have_a_killing_event():
    manifest = {**pod(), "status": {"containerStatuses": [
        {"name": "pytorch", "state": RUNNING}, {"name": "ended", "state": ENDED}]}}  # fmt: skip
    assert [each["message"] for each in pod_transitions.iter_stop_events(manifest)] == [
        "Stopping container pytorch"
    ]

"""Pod objects after each transition, and the events of the kubelet when containers start and end."""

import pytest
from kept_objects import AT_ONCE, BEGAN, container, pod, stored

from backend_plugin.core.object_readers import read_pod
from backend_plugin.embedded import pod_transitions
from backend_plugin.embedded.scheduling_cycle import GPU_INDICES, Binding

READY = {"type": "Ready", "status": "True", "lastTransitionTime": AT_ONCE}
RUNNING = {"running": {"startedAt": AT_ONCE}}
ENDED = {"terminated": {"exitCode": 1}}
UNSTARTED = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}}
NOT_STARTED = ("Failed", "Error: no such file", True)
BACK_OFF = ("BackOff", "Back-off restarting failed container pytorch in pod p_a(u)", True)
STARTED = ("Started", "Started container pytorch", False)
INIT_STARTED = ("Started", "Started container init-pytorch", False)
PULL_BACK_OFF = ("BackOff", 'Back-off pulling image "x"', False)
NO_IMAGE = ("Failed", "Error: no venv for x", True)


def bound(**binding):
    return pod_transitions.bind(pod("p", container()), Binding(uid="u", node="node-1", **binding), BEGAN)


def types(manifest):
    return [each["type"] for each in manifest["status"]["conditions"]]


def test_kubelet_status_keeps_conditions_of_other_components():
    evicted = pod_transitions.mark_evicted(bound(), BEGAN)
    merged = pod_transitions.merge_status(evicted, {"phase": "Running", "conditions": [READY]})
    assert sorted(types(merged)) == ["DisruptionTarget", "PodScheduled", "Ready"]
    unready = {**READY, "status": "False"}
    later = pod_transitions.merge_status(merged, {"phase": "Failed", "conditions": [unready]})
    assert read_pod(later).phase == "Failed"
    assert sorted(types(later)) == ["DisruptionTarget", "PodScheduled", "Ready"]
    assert read_pod(later).disrupted.reason == "EvictionByEvictionAPI"


def test_deletion_uses_the_grace_period_of_the_pod():
    ending = pod_transitions.mark_terminating({**pod(), "spec": {"terminationGracePeriodSeconds": 5}}, BEGAN)
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 5
    assert read_pod(ending).deleted == BEGAN


def test_containers_see_only_the_gpus_that_they_request():
    asked = pod("p", container("pytorch", **{"nvidia.com/gpu": "2"}), container("sidecar"))
    given = pod_transitions.bind(asked, Binding(uid="u", node="n", gpus=(1, 3)), BEGAN)
    assert given["metadata"]["annotations"] == {GPU_INDICES: "1,3"}
    assert [each["env"] for each in pod_transitions.with_visible_gpus(given)["spec"]["containers"]] == [
        [{"name": "CUDA_VISIBLE_DEVICES", "value": value}] for value in ("1,3", "")
    ]
    assert pod_transitions.with_visible_gpus(bound()) == bound()


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


def status(state, restarts=0, **more):
    return {"containerStatuses": [{"name": "pytorch", "state": state, "restartCount": restarts, **more}]}


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
        (status(RUNNING), status(waiting("CrashLoopBackOff"), 0), [BACK_OFF]),
        (status(waiting("CrashLoopBackOff")), status(waiting("CrashLoopBackOff")), []),
        ({}, status(waiting("ErrImagePull", "no venv for x"), image="x"), [NO_IMAGE]),
        ({}, status(waiting("ImagePullBackOff"), image="x"), [PULL_BACK_OFF]),
        ({}, {"initContainerStatuses": [{"name": "init-pytorch", "state": RUNNING}]}, [INIT_STARTED]),
    ],
)  # fmt: skip
def test_event_is_emitted_for_each_container_state_change(before, after, expected):
    events = pod_transitions.iter_change_events({**stored(pod(), "u"), "status": before}, after)
    assert [(each["reason"], each["message"], each["type"] == "Warning") for each in events] == expected


def test_running_containers_have_a_killing_event():
    statuses = [{"name": "pytorch", "state": RUNNING}, {"name": "ended", "state": ENDED}]
    manifest = {**pod(), "status": {"containerStatuses": statuses}}
    messages = [each["message"] for each in pod_transitions.iter_stop_events(manifest)]
    assert messages == ["Stopping container pytorch"]

# ruff: noqa: E501 - a row a case
"""The pod status that the kubelet reports."""

from functools import partial

import pytest
from bound_pods import container, replica

from backend_plugin.embedded import pod_status

NOW = 1_700_000_100.0
AT_ONCE = "2023-11-14T22:15:00Z"
WELL = pod_status.TerminatedState(exit_code=0, reason="Completed", started=NOW - 9, finished=NOW - 1)
BADLY = pod_status.TerminatedState(
    exit_code=3, reason="Error", message="oh", started=NOW - 9, finished=NOW - 1
)


app, init, sidecar = (partial(pod_status.ContainerState, kind=kind) for kind in ("app", "init", "sidecar"))
RUNNING = {"running_since": NOW - 5}


def state(final=False, reason="", **containers):
    return pod_status.PodState(since=NOW - 10, final=final, reason=reason, containers=containers)


def build_pod_status(of, before=None):
    def build_containers(*kinds):
        return [container("true", name=name) for name, one in of.containers.items() if one.kind in kinds]

    pod = replica(initContainers=build_containers("init", "sidecar"), containers=build_containers("app"))
    return pod_status.build_status(pod, of, before or {}, NOW)


def conditions(status):
    return {
        each["type"]: (each["status"], each.get("reason"), each.get("message"))
        for each in status["conditions"]
    }


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (state(a=app()), "Pending"),
        (state(a=app(**RUNNING)), "Running"),
        (state(a=app(**RUNNING), b=app()), "Pending"),
        (state(a=app(waiting=("CrashLoopBackOff", ""), ended=BADLY)), "Running"),
        (state(a=app(ended=WELL)), "Running"),
        (state(i=init(**RUNNING), a=app()), "Pending"),
        (state(i=init(waiting=("CrashLoopBackOff", ""), ended=BADLY), a=app()), "Pending"),
        (state(i=init(ended=WELL), a=app(**RUNNING)), "Running"),
        (state(s=sidecar(**RUNNING), a=app(ended=WELL)), "Running"),
        (state(final=True, a=app(ended=WELL)), "Succeeded"),
        (state(final=True, s=sidecar(ended=BADLY), a=app(ended=WELL)), "Succeeded"),
        (state(final=True, a=app(ended=WELL), b=app(ended=BADLY)), "Failed"),
        (state(final=True, i=init(ended=BADLY), a=app()), "Failed"),
        (state(final=True, a=app()), "Failed"),
        (state(final=True, reason="DeadlineExceeded", a=app(ended=WELL)), "Failed"),
    ],
)
def test_pod_phase_is_computed_from_container_states(of, expected):
    assert pod_status.compute_phase(of) == build_pod_status(of)["phase"] == expected


@pytest.mark.parametrize(
    ("of", "now", "last"),
    [
        (app(), {"waiting": {"reason": "ContainerCreating"}}, {}),
        (app(waiting=("ErrImagePull", "no")), {"waiting": {"reason": "ErrImagePull", "message": "no"}}, {}),
        (app(ended=WELL), {"terminated": WELL.as_json()}, {}),
        (app(ended=BADLY, previous=WELL), {"terminated": BADLY.as_json()}, {"terminated": WELL.as_json()}),
        (app(ended=BADLY, previous=WELL, waiting=("CrashLoopBackOff", "10s")), {"waiting": {"reason": "CrashLoopBackOff", "message": "10s"}}, {"terminated": BADLY.as_json()}),
    ],
)  # fmt: skip
def test_container_states_are_reported(of, now, last):
    (status,) = build_pod_status(state(a=of))["containerStatuses"]
    assert (status["state"], status["lastState"]) == (now, last)
    assert not status["ready"]


def test_conditions_list_the_incomplete_containers():
    status = build_pod_status(state(one=init(ended=WELL), two=init(**RUNNING), a=app(), b=app()))
    unready = ("False", "ContainersNotReady", "containers with unready status: [a b]")
    assert conditions(status) == {
        "Initialized": ("False", "ContainersNotInitialized", "containers with incomplete status: [two]"),
        "ContainersReady": unready,
        "Ready": unready,
    }
    first, second = status["initContainerStatuses"]
    assert (first["ready"], second["ready"]) == (True, False)
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(("end", "reason"), [(WELL, "PodCompleted"), (BADLY, "PodFailed")])
def test_finished_pod_is_not_ready(end, reason):
    found = conditions(build_pod_status(state(final=True, a=app(ended=end))))
    assert found["Ready"] == found["ContainersReady"] == ("False", reason, None)


def test_condition_keeps_its_time_until_it_changes():
    old = "2020-01-01T00:00:00Z"
    before = [
        {"type": name, "status": status, "lastTransitionTime": old}
        for name, status in (("Initialized", "True"), ("Ready", "False"))
    ]
    status = build_pod_status(state(a=app(**RUNNING)), {"conditions": before})
    times = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
    assert times == {"Initialized": old, "ContainersReady": AT_ONCE, "Ready": AT_ONCE}


def test_containers_of_a_lost_pod_have_an_unknown_termination():
    of = state(
        i=init(ended=WELL), a=app(**RUNNING), b=app(waiting=("CrashLoopBackOff", ""), ended=BADLY), c=app()
    )
    status = build_pod_status(pod_status.build_lost_state(replica(), of, NOW))
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert status["message"] == "Node node-1 which was running pod j-worker-1 is unresponsive"
    message = "The container could not be located when the pod was terminated"
    reason = {"reason": "ContainerStatusUnknown", "message": message}
    times = {"startedAt": "2023-11-14T22:14:55Z", "finishedAt": AT_ONCE}
    assert [each["state"] for each in status["containerStatuses"]] == [
        {"terminated": {"exitCode": 137, **reason, **times}},
        {"terminated": BADLY.as_json()},
        {"waiting": {"reason": "PodInitializing"}},
    ]
    # No state was recorded.
    assert build_pod_status(pod_status.build_lost_state(replica(), None, NOW))["phase"] == "Failed"

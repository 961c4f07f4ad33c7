"""The start order of the containers in a pod. The clock is a number, so the tests do not wait."""

import pytest

from backend_plugin.embedded.shim import lifecycle


def container(name, kind=lifecycle.APP, policy="OnFailure"):
    return lifecycle.ContainerLifecycle(
        name, kind, "Always" if kind == lifecycle.SIDECAR else policy, lifecycle.RestartTimer(10, 300, 600)
    )


def pod(*containers):
    return lifecycle.PodLifecycle("p_a(u)", list(containers))


def due(of, now=0.0):
    return [each.name for each in of.select_due(now)]


def run(of, now=0.0):
    """Start all containers that are due, until none remains. Return their names in order."""
    names = []
    while found := of.select_due(now):
        for each in found:
            lifecycle.record_start(each, now)
            names.append(each.name)
    return names


def record_exit(each, code=0, now=0.0):
    lifecycle.record_exit(each, lifecycle.RunExit(code, "", each.running_since or 0, now))


@pytest.mark.parametrize("kind", [lifecycle.INIT, lifecycle.SIDECAR])
def test_init_containers_run_one_by_one_before_all_others(kind):
    before, first, app = container("before", kind), container("first", lifecycle.INIT), container("app")
    of = pod(before, first, app)
    assert due(of) == ["before"]
    if kind == lifecycle.INIT:
        assert run(of) == ["before"]
        record_exit(before)
        assert run(of) == ["first"]
    else:  # A sidecar must be started, but does not end.
        assert run(of) == ["before", "first"]
    record_exit(first)
    assert run(of) == ["app"]


def test_sidecar_that_could_not_be_started_blocks_later_containers():
    sidecar, app = container("sidecar", lifecycle.SIDECAR), container("app")
    of = pod(sidecar, app)
    lifecycle.record_start(sidecar, 0)
    lifecycle.record_exit(sidecar, lifecycle.RunExit(128, "StartError", 0, 0))
    assert due(of) == ["sidecar"]


def test_sidecar_is_restarted_while_other_containers_run():
    sidecar, app = container("sidecar", lifecycle.SIDECAR), container("app")
    of = pod(sidecar, app)
    run(of)
    record_exit(sidecar)
    assert run(of) == ["sidecar"]
    assert sidecar.restarts == 1
    record_exit(app)
    # A sidecar does not keep a pod running.
    assert (of.is_finished, due(of)) == (True, [])


@pytest.mark.parametrize(
    ("policy", "again"), [("Never", (False, False)), ("OnFailure", (False, True)), ("Always", (True, True))]
)
def test_restart_policy_determines_whether_a_container_is_restarted(policy, again):
    for code in (0, 1):
        app = container("app", policy=policy)
        of = pod(app)
        run(of)
        record_exit(app, code)
        restarts = due(of) == ["app"]
        assert (app.is_done, of.is_finished, restarts) == (not again[code], not again[code], again[code])


def test_first_restart_is_immediate_and_later_delays_double():
    app = container("app")
    of = pod(app)
    now, waits = 0.0, []
    run(of, now)
    for _ in range(8):
        record_exit(app, 1, now)
        begin = now
        if not due(of, now):
            now = of.wake_at
        waits.append(now - begin)
        assert run(of, now) == ["app"]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert app.restarts == 8


def test_backoff_is_reset_after_a_long_run():
    app = container("app")
    of = pod(app)
    now = 0.0
    for _ in range(4):
        run(of, now)
        record_exit(app, 1, now)
        now += 300
    run(of, now)
    now += 601
    record_exit(app, 1, now)
    assert run(of, now) == ["app"]
    record_exit(app, 1, now)
    assert due(of, now) == []
    assert of.wake_at == now + 10


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300, "5m0s"), (0.5, "0.5s")])
def test_durations_are_formatted_like_go(seconds, text):
    assert lifecycle.format_duration(seconds) == text

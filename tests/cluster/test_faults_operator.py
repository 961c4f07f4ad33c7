"""The training operator is away, restarted or runs twice: jobs continue, and no pod is duplicated."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from rig import operator
from rig.api import jobs, pods
from rig.caller import Caller, CallerAttempt, Shape, code_of
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import Process, wait_until

NAMESPACE = "faults-operator"


def created(caller: Caller, seconds: int) -> CallerAttempt:
    attempt = caller.create(shape=Shape(workers=1, annotations={RUN: f"{seconds}s"}))
    caller.succeeded(attempt)
    return attempt


def until_told(caller: Caller, attempt: CallerAttempt, phase: str) -> None:
    wait_until(lambda: caller.get(attempt).phase == phase, 60, lambda: str(caller.get(attempt)))


def test_creates_are_retryable_and_jobs_continue_without_the_operator(
    plane: ControlPlane, caller: Caller, training_operator: Process
) -> None:
    runs = created(caller, 8)
    until_told(caller, runs, "RUNNING")
    training_operator.kill()
    late = caller.attempt()
    try:
        with pytest.raises(grpc.RpcError) as raised:
            caller.create(late)
        assert code_of(raised.value) == "UNAVAILABLE"
        # The operator's webhook must admit every job.
        assert "failed calling webhook" in str(raised.value.details())
        assert caller.get(runs).phase == "RUNNING"
    finally:
        training_operator.start()
        wait_until(lambda: operator.refuses(plane), 60, training_operator.tail)
    caller.create(late)
    until_told(caller, late, "RUNNING")
    until_told(caller, runs, "SUCCEEDED")
    caller.delete(late)


def test_create_with_a_hanging_operator_is_retryable(
    plane: ControlPlane, caller: Caller, training_operator: Process
) -> None:
    """The webhook accepts connections but does not respond; a retry creates the job once."""
    attempt = caller.attempt()
    training_operator.pause()
    try:
        with pytest.raises(grpc.RpcError) as raised:
            caller.create(attempt)
        assert code_of(raised.value) == "UNAVAILABLE"
    finally:
        training_operator.resume()
    caller.create(attempt, Shape(workers=1, annotations={RUN: "1s"}))
    caller.succeeded(attempt)
    until_told(caller, attempt, "SUCCEEDED")
    (job,) = plane.admin.items(jobs(NAMESPACE), labelSelector=f"execution-id={attempt.execution}")
    assert job["metadata"]["uid"] == attempt.uid


def test_two_operators_create_each_pod_once(plane: ControlPlane, caller: Caller, tmp_path: Path) -> None:
    """A faulty installation in which two operators run without leader election."""
    version = plane.admin.request("GET", pods(NAMESPACE)).json()["metadata"]["resourceVersion"]
    with operator.another(plane):
        begun = [created(caller, 4) for _ in range(5)]
        for attempt in begun:
            until_told(caller, attempt, "SUCCEEDED")
        # Pod names are unique at any time, so a replica that was created twice has two pods in sequence.
        made = Counter(_made_since(plane, version))
    assert made == Counter(f"{attempt.job}-{role}-0" for attempt in begun for role in ("master", "worker"))


def _made_since(plane: ControlPlane, version: str) -> Iterator[str]:
    """Yield the name of each pod that was created since `version`, including deleted ones."""
    for change in plane.admin.watch(pods(NAMESPACE), resourceVersion=version, timeoutSeconds="2"):
        assert change["type"] != "ERROR", change
        if change["type"] == "ADDED":
            yield change["object"]["metadata"]["name"]

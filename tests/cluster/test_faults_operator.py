"""The training operator is away and restarted: jobs continue, and creations can be repeated."""

import grpc
import pytest
from rig import operator
from rig.caller import Shape, code_of
from rig.fake_nodes import RUN
from rig.process import wait_until

NAMESPACE = "faults-operator"


def created(caller, seconds):
    attempt = caller.create(shape=Shape(workers=1, annotations={RUN: f"{seconds}s"}))
    caller.succeeded(attempt)
    return attempt


def test_creates_are_retryable_and_jobs_continue_without_the_operator(plane, caller, training_operator):
    runs = created(caller, 8)
    caller.wait_for(runs, "RUNNING")
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
    caller.wait_for(late, "RUNNING")
    caller.wait_for(runs, "SUCCEEDED")
    caller.delete(late)

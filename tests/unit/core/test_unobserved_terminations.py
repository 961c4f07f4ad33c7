"""Tests for unobserved terminations of a failed job."""

import pytest
from cluster import (
    BEGAN,
    FAILED,
    RUNNING,
    SUCCEEDED,
    at,
    build_ended_pod,
    condition,
    error_file,
    job,
    pod,
    running,
    with_metadata,
)

from backend_plugin.core.judging import verdict_annotation
from backend_plugin.core.judging.verdict import build_failure
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import has_unobserved_termination
from kfpytorch_common.causes import Cause

LOST = error_file("j-master-0", "RuntimeError: [third_party/gloo/x] Connection closed by peer")
RUN = (running("master-0"), running("worker-0"))


def exited(code: int, since: float | None = 99, worker: str = "worker-0"):
    message = f"Pod: ns.j-{worker} exited with code {code}"
    return {"reason": "ExitedWithCode", "message": message, "lastTimestamp": since and at(since)}


def decided(annotation: str):
    return with_metadata(job(FAILED), annotations={verdict_annotation.ANNOTATION: annotation})


KEPT = verdict_annotation.encode(build_failure(Cause.SYSTEM_ERROR, "Failed", "m"), BEGAN)
TAKEN = {"conditions": [condition("DisruptionTarget", reason="PreemptionByScheduler")]}
ASKED = {
    "all have status Running": (job(FAILED), RUN, {}, True),
    "none is there": (job(FAILED), (), {}, True),
    "one is there": (job(FAILED), (running("master-0"),), {}, True),
    "its operator saw one end that has status Running": (job(FAILED), RUN, {"events": [exited(3)]}, True),
    "its operator saw one end that is gone": (job(FAILED), RUN[:1], {"events": [exited(3)]}, False),
    "one has lost its peer, which has status Running": (job(FAILED), RUN, {"error_files": [LOST]}, True),
    "one has lost its peer, and none has status Running": (job(FAILED), (), {"error_files": [LOST]}, False),
    "one with status Running has written why": (job(FAILED), RUN, {"error_files": [error_file()]}, False),
    "one has ended": (job(FAILED), (running("master-0"), build_ended_pod("worker-0", 3)), {}, False),
    "one is taken away": (job(FAILED), (running("master-0"), pod("worker-0", **TAKEN)), {}, False),
    "it was decided": (decided(KEPT), RUN, {}, False),
    "another text is written there": (decided("{"), RUN, {}, True),
    "it goes on": (job(RUNNING), RUN, {}, False),
    "it was done": (job(SUCCEEDED), RUN, {}, False),
    "it is gone": (None, RUN, {}, False),
}


@pytest.mark.parametrize(("job", "pods", "more", "is_asked"), ASKED.values(), ids=ASKED)
def test_failed_job_without_a_cause_may_have_an_unobserved_termination(job, pods, more, is_asked):
    assert has_unobserved_termination(read_observed({"job": job, "pods": list(pods), **more})) is is_asked

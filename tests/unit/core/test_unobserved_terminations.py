"""Tests for unobserved terminations of a failed job, and for events about pods that appear to run."""

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
    going,
    job,
    pod,
    running,
    short,
    verdict,
    with_metadata,
)

from backend_plugin.core.judging import verdict_annotation
from backend_plugin.core.judging.unobserved_terminations import has_unobserved_termination
from backend_plugin.core.judging.verdict import build_failure
from backend_plugin.core.object_readers import read_observed
from kfpytorch_common.causes import Cause

LOST = error_file("j-master-0", "RuntimeError: [third_party/gloo/x] Connection closed by peer")
RUN = (running("master-0"), running("worker-0"))
OOM = ("RETRYABLE_FAILED", "OOMKilled", "oom-host")
DELETED = ("RETRYABLE_FAILED", "Deleted", "preempted")
UNTOLD = ("RETRYABLE_FAILED", "PyTorchJobFailed", "system-error")
EXIT = ("FAILED", "ExitCode", "user-error")


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


AGAIN = pod("worker-0", container={"restartCount": 1, "state": {"running": {"startedAt": at(5)}}})
TIMELESS = pod("worker-0", metadata={"creationTimestamp": None})
NEWS = {
    "it has status Running": (running("worker-0"), exited(3), EXIT),
    "it has status Pending": (pod("worker-0", "Pending"), exited(3), EXIT),
    "it began after that": (running("worker-0", since=99), exited(3), UNTOLD),
    "it was made after that": (pod("worker-0", metadata={"creationTimestamp": at(99)}), exited(3), UNTOLD),
    "it was started anew": (AGAIN, exited(3), UNTOLD),
    "its start time is unknown": (TIMELESS, exited(3), UNTOLD),
    "that time is unknown": (running("worker-0"), exited(3, None), UNTOLD),
    "it has another status": (running("worker-0"), {**exited(3), "reason": "Error"}, UNTOLD),
    "it ended with a status": (build_ended_pod("worker-0", 137, "OOMKilled"), exited(3), OOM),
    "it is being deleted": (going(running("worker-0"), 98), exited(3), DELETED),
}  # fmt: skip


@pytest.mark.parametrize(("worker", "event", "expected"), NEWS.values(), ids=NEWS)
def test_exit_event_of_the_operator_counts_if_the_pod_appears_to_run(worker, event, expected):
    assert short(verdict(job(FAILED), running("master-0"), worker, events=[event], now=106)) == expected

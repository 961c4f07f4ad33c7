"""Tests for the pending reason of a running job if a lost replica cannot be created again."""

import pytest
from cluster import RUNNING, anew, at, condition, going, running, verdict
from waiting_gang import first_line, gang

REFUSED = {
    "type": "Warning",
    "reason": "FailedCreatePod",
    "message": 'pods "j-worker-3" is forbidden: exceeded quota: gpu',
}
SAID = 'its pods cannot be created: pods "j-worker-3" is forbidden: exceeded quota: gpu'
LEFT = [running(name) for name in ("master-0", "worker-0", "worker-1", "worker-2")]


def refused(seconds):
    return {**REFUSED, "lastTimestamp": None if seconds is None else at(seconds)}


def elastic():
    job = gang(RUNNING)
    job["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 5}
    return job


RESTARTING = condition("Restarting", message="")


@pytest.mark.parametrize("job", [gang(RUNNING), elastic(), gang(RESTARTING)])
def test_running_job_reports_that_a_lost_replica_cannot_be_created(job):
    result = verdict(job, *LEFT, events=[refused(150)])
    assert (result.phase.value, result.cause and result.cause.value) == ("RUNNING", "quota-exceeded")
    assert first_line(result) == f"{SAID} (4 of 5 replicas ready)"
    assert result.message.splitlines()[1].startswith("the namespace's ResourceQuota")


@pytest.mark.parametrize(
    ("pods", "refusal"),
    [
        # All replicas exist.
        ([*LEFT, anew(running("worker-3"))], refused(165)),
        # The failed creation precedes the first full set.
        (LEFT, refused(0)),
        # Another replica was created after the failed creation.
        ([*LEFT[:3], anew(running("worker-2"))], refused(150)),
        # The replica was created after the failed creation, and is being deleted.
        ([*LEFT, going(anew(running("worker-3")), 180)], refused(150)),
        # The event has no time.
        (LEFT, refused(None)),
        (LEFT, {**refused(150), "type": "Normal"}),
        (LEFT, {**refused(150), "reason": "Other"}),
    ],
)
def test_past_creation_failure_is_not_reported(pods, refusal):
    result = verdict(gang(RUNNING), *pods, events=[refusal])
    assert "waits" not in result.info
    assert result.phase.value == "RUNNING"


def test_replica_that_is_being_deleted_counts_as_lost():
    result = verdict(gang(RUNNING), *LEFT, going(running("worker-3"), 140), events=[refused(150)])
    assert first_line(result) == f"{SAID} (4 of 5 replicas ready)"

"""Deadlines, restart limits, expiry, suspension and scaling of jobs."""

from typing import Any

import pytest
from operated_jobs import a_condition, a_job, a_pod, after, conditions, list_actions, run_controller, stamp

STARTED = {"conditions": [a_condition("Created"), a_condition("Running")], "startTime": stamp()}
ON_FAILURE = {"restartPolicy": "OnFailure"}
TOO_OFTEN = "Job job has failed because it has reached the specified backoff limit"
TOO_LONG = "Job job has failed because it was active longer than specified deadline"


def limited(policy: dict[str, Any], *, status: Any = STARTED, **worker: Any) -> dict[str, Any]:
    return a_job(master={}, worker={**ON_FAILURE, **worker}, runPolicy=policy, status=status)


def messages(step: Any) -> list[str]:
    return [each["message"] for each in step.status["conditions"] if each["type"] == "Failed"]


def test_pod_recreation_above_the_backoff_limit_ends_the_job() -> None:
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=1, restarts=1)]
    goes_on = run_controller(limited({"backoffLimit": 3}), *pods)
    worker = goes_on.status["replicaStatuses"]["Worker"]
    assert (worker["failed"], worker["restarts"]) == (1, 2)
    assert list_actions(goes_on) == ["DeletePod job-worker-0"]
    ends = run_controller(limited({"backoffLimit": 2}), *pods)
    assert conditions(ends) == ["Created=True", "Running=False", "Failed=True"]
    assert messages(ends) == [TOO_OFTEN]
    assert list_actions(ends) == [
        f"Delete{kind} job-{name}-0" for name in ("master", "worker") for kind in ("Pod", "Service")
    ]


@pytest.mark.parametrize(
    ("policy", "now", "failed", "wake_at"),
    [
        ({"activeDeadlineSeconds": 60}, 59, False, after(60)),
        ({"activeDeadlineSeconds": 60}, 60, True, None),
        ({"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5}, 60, True, after(65)),
        ({"activeDeadlineSeconds": -5}, 0, True, None),
        ({}, 10_000, False, None),
    ],
)
def test_deadline_is_exact_to_the_second(policy: Any, now: int, failed: bool, wake_at: Any) -> None:
    step = run_controller(
        limited(policy), a_pod("master-0", "Running"), a_pod("worker-0", "Running"), now=after(now)
    )
    assert (messages(step), step.wake_at) == ([TOO_LONG] if failed else [], wake_at)


@pytest.mark.parametrize(
    ("policy", "now", "expected"),
    [
        ({"ttlSecondsAfterFinished": 60}, 59, ([], after(60))),
        ({"ttlSecondsAfterFinished": 60}, 60, (["DeleteJob"], None)),
        ({"ttlSecondsAfterFinished": 0}, 0, (["DeleteJob"], None)),
        ({"ttlSecondsAfterFinished": -3}, 0, (["DeleteJob"], None)),
        ({"ttlSecondsAfterFinished": 60, "suspend": True}, 99, ([], None)),
        ({}, 10_000, ([], None)),
    ],
)
def test_finished_job_is_deleted_after_its_ttl(policy: Any, now: int, expected: Any) -> None:
    done = {"conditions": [a_condition("Failed")], "completionTime": stamp()}
    step = run_controller(a_job(worker={}, runPolicy=policy, status=done), now=after(now))
    assert (list_actions(step), step.wake_at, step.status) == (*expected, None)

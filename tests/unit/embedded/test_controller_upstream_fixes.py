"""Deviations of the default mode from the operator, which the recorded histories show."""

from typing import Any

import pytest
from operated_jobs import a_condition, a_job, a_pod, after, conditions, list_actions, run_controller, stamp

STARTED = {"conditions": [a_condition("Created"), a_condition("Running")], "startTime": stamp()}
ON_FAILURE = {"restartPolicy": "OnFailure"}
EXIT_CODE = {"restartPolicy": "ExitCode"}


@pytest.mark.parametrize(
    ("job", "pods", "end"),
    [
        (a_job(worker=EXIT_CODE, status=STARTED), [a_pod("worker-0", "Failed", exit=1)], "Failed=True"),
        (
            a_job(worker={"replicas": 2}, elasticPolicy={}, status=STARTED),
            [a_pod("worker-0", "Succeeded"), a_pod("worker-1", "Failed")],
            "Succeeded=True",
        ),
        (
            a_job(master={}, worker=EXIT_CODE, status=STARTED),
            [a_pod("master-0", "Succeeded"), a_pod("worker-0", "Failed", exit=1)],
            "Failed=True",
        ),
    ],
    ids=["failure by exit code", "elastic success", "failure after the success of the master"],
)
def test_job_ends_once_with_one_event_and_a_completion_time(job: Any, pods: Any, end: str) -> None:
    step = run_controller(job, *pods)
    assert conditions(step)[1:] == ["Running=False", end]
    assert step.status is not None
    assert step.status["completionTime"] == stamp()
    reasons = {event["reason"] for event in step.events}
    assert reasons & {"PyTorchJobSucceeded", "PyTorchJobFailed"} == {f"PyTorchJob{end.partition('=')[0]}"}


def test_failed_job_without_a_completion_time_expires() -> None:
    failed = {"conditions": [a_condition("Failed")]}
    step = run_controller(a_job(worker={}, runPolicy={"ttlSecondsAfterFinished": 5}, status=failed))
    assert ((step.status or {})["completionTime"], step.wake_at) == (stamp(), after(5))


def test_deadline_is_applied_before_the_job_is_deleted() -> None:
    policy = {"activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": 0}
    step = run_controller(a_job(worker={}, runPolicy=policy, status=STARTED))
    assert (list_actions(step), conditions(step)[-1]) == ([], "Failed=True")
    next_pass = run_controller(a_job(worker={}, runPolicy=policy, status=step.status))
    assert list_actions(next_pass) == ["DeleteJob"]


@pytest.mark.parametrize(
    ("worker", "pods", "actions"),
    [
        ({"replicas": 0}, [], []),
        (
            {},
            [a_pod("worker-0", "Running"), a_pod("worker-2", "Running", deleted=30)],
            ["DeleteService job-worker-2"],
        ),
        (
            ON_FAILURE,
            [a_pod("worker-0", "Running"), a_pod("worker-1", "Failed")],
            ["DeletePod job-worker-1", "DeleteService job-worker-1"],
        ),
    ],
    ids=["no replicas", "a gap", "a failed pod"],
)
def test_surplus_pods_are_not_created_and_deleted_once(worker: Any, pods: Any, actions: list[str]) -> None:
    assert list_actions(run_controller(a_job(worker=worker, status=STARTED), *pods)) == actions


def test_terminating_surplus_pod_does_not_fail_the_job() -> None:
    pods = [a_pod("worker-0", "Pending"), a_pod("worker-1", "Running", deleted=30)]
    assert conditions(run_controller(a_job(worker={}), *pods)) == ["Created=True"]


def test_unchanged_condition_is_not_written_again() -> None:
    restarting = {"conditions": [a_condition("Created"), a_condition("Restarting")], "startTime": stamp()}
    job = a_job(master=ON_FAILURE, worker=ON_FAILURE, status=restarting)
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Running", deleted=30)]
    step = run_controller(job, *pods, now=after(9))
    assert [each["lastUpdateTime"] for each in (step.status or {})["conditions"]] == [stamp(), stamp()]

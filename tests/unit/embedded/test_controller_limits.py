"""Deadlines, restart limits, expiry, suspension and scaling of jobs."""

from typing import Any

import pytest
from operated_jobs import (
    NOW,
    a_condition,
    a_job,
    a_pod,
    after,
    conditions,
    list_actions,
    replicas,
    run_controller,
    stamp,
)

from backend_plugin.embedded.operators.actions import JobSnapshot
from backend_plugin.embedded.operators.pytorchjob import with_recreations

STARTED = {"conditions": [a_condition("Created"), a_condition("Running")], "startTime": stamp()}
ON_FAILURE = {"restartPolicy": "OnFailure"}
TOO_OFTEN = "Job job has failed because it has reached the specified backoff limit"
TOO_LONG = "Job job has failed because it was active longer than specified deadline"


def limited(policy: dict[str, Any], *, status: Any = STARTED, **worker: Any) -> dict[str, Any]:
    return a_job(master={}, worker={**ON_FAILURE, **worker}, runPolicy=policy, status=status)


def messages(step: Any) -> list[str]:
    return [each["message"] for each in step.status["conditions"] if each["type"] == "Failed"]


@pytest.mark.parametrize(
    ("limit", "restarts", "past", "failed"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (1, 1, 0, True),
        (3, 2, 0, False),
        (3, 3, 0, True),
        (3, 1, 1, False),
        (3, 1, 2, True),
        (-1, 0, 0, True),
        (None, 99, 99, False),
    ],
)
def test_restarts_in_place_and_of_whole_pods_are_counted_together(
    limit: int | None, restarts: int, past: int, failed: bool
) -> None:
    status = {**STARTED, "replicaStatuses": {"Worker": {"restarts": past}}}
    policy = {} if limit is None else {"backoffLimit": limit}
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Running", restarts=restarts)]
    step = run_controller(limited(policy, status=status), *pods)
    assert messages(step) == ([TOO_OFTEN] if failed else [])


def test_a_pod_that_would_be_made_anew_once_too_often_ends_the_job() -> None:
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=1, restarts=1)]
    goes_on = run_controller(limited({"backoffLimit": 3}), *pods)
    ends = run_controller(limited({"backoffLimit": 2}), *pods)
    assert (replicas(goes_on)["Worker"], list_actions(goes_on)) == (
        {"failed": 1, "restarts": 2},
        ["DeletePod job-worker-0"],
    )
    assert (conditions(ends), messages(ends)) == (
        ["Created=True", "Running=False", "Failed=True"],
        [TOO_OFTEN],
    )
    assert list_actions(ends) == [
        "DeletePod job-master-0",
        "DeleteService job-master-0",
        "DeletePod job-worker-0",
        "DeleteService job-worker-0",
    ]


def test_what_was_made_anew_before_a_pass_was_refused_counts() -> None:
    pods = [a_pod(f"worker-{number}", "Failed", exit=1, restarts=number) for number in range(3)]
    status = {**STARTED, "replicaStatuses": {"Worker": {"restarts": 4}}}
    worker = {"replicas": 3, "restartPolicy": "OnFailure"}
    job = a_job(worker=worker, status=status)
    step = run_controller(job, *pods)
    seen = JobSnapshot(job=job, pods=pods, services=[], now=NOW)
    assert replicas(step)["Worker"]["restarts"] == 4 + 1 + 2 + 3
    assert with_recreations(seen, step, step.actions[:2]) == {
        **job,
        "status": {**status, "replicaStatuses": {"Worker": {"restarts": 4 + 1 + 2}}},
    }
    assert with_recreations(seen, step, step.actions[:0]) is job


def test_restarts_under_never_do_not_count() -> None:
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Running", restarts=5)]
    step = run_controller(limited({"backoffLimit": 1}, restartPolicy="Never"), *pods)
    assert messages(step) == []


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
def test_a_deadline_is_kept_to_the_second(policy: Any, now: int, failed: bool, wake_at: Any) -> None:
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
def test_a_finished_job_is_kept_as_long_as_it_says(policy: Any, now: int, expected: Any) -> None:
    done = {"conditions": [a_condition("Failed")], "completionTime": stamp()}
    step = run_controller(a_job(worker={}, runPolicy=policy, status=done), now=after(now))
    assert (list_actions(step), step.wake_at, step.status) == (*expected, None)


def test_suspension_removes_all_and_ends_nothing() -> None:
    status = {**STARTED, "replicaStatuses": {"Master": {"active": 1}}}
    job = a_job(master={}, runPolicy={"suspend": True, "cleanPodPolicy": "None"}, status=status)
    step = run_controller(job, a_pod("master-0", "Running"), now=after(9))
    assert list_actions(step) == ["DeletePod job-master-0", "DeleteService job-master-0"]
    assert step.status == {
        "conditions": [
            a_condition("Created"),
            *(
                {
                    "type": kind,
                    "status": holds,
                    "reason": "PyTorchJobSuspended",
                    "message": "PyTorchJob job is suspended.",
                    "lastUpdateTime": stamp(9),
                    "lastTransitionTime": stamp(9),
                }
                for kind, holds in (("Running", "False"), ("Suspended", "True"))
            ),
        ],
        "replicaStatuses": {"Master": {}},
        "startTime": stamp(),
    }


def test_a_job_that_begins_suspended_has_not_started() -> None:
    step = run_controller(a_job(worker={}, runPolicy={"suspend": True}))
    assert (conditions(step), step.actions) == (["Created=True", "Suspended=True"], ())
    assert step.status is not None
    assert "startTime" not in step.status


def test_a_resumed_job_starts_again() -> None:
    status = {"conditions": [a_condition("Created"), a_condition("Suspended")], "startTime": stamp()}
    step = run_controller(a_job(worker={}, status=status), now=after(30))
    assert (conditions(step), list_actions(step)) == (
        ["Created=True", "Suspended=False"],
        ["CreatePod job-worker-0", "CreateService job-worker-0"],
    )
    assert step.status is not None
    assert step.status["startTime"] == stamp(30)
    assert [event["reason"] for event in step.events] == ["PyTorchJobResumed"]


def test_the_end_outlives_a_suspension() -> None:
    done = {"conditions": [a_condition("Succeeded")], "completionTime": stamp()}
    step = run_controller(
        a_job(worker={}, runPolicy={"suspend": True}, status=done), a_pod("worker-0", "Running")
    )
    assert (step.status, step.actions) == (None, ())


def test_scaling_adds_at_the_end_and_removes_from_it() -> None:
    pods = [a_pod(f"worker-{index}", "Running") for index in range(3)]
    more = run_controller(a_job(worker={"replicas": 4}), *pods)
    fewer = run_controller(a_job(worker={"replicas": 1}), *pods)
    assert list_actions(more) == ["CreatePod job-worker-3", "CreateService job-worker-3"]
    assert list_actions(fewer) == [
        "DeletePod job-worker-1",
        "DeletePod job-worker-2",
        "DeleteService job-worker-1",
        "DeleteService job-worker-2",
    ]


def test_a_place_is_taken_until_its_pod_is_gone() -> None:
    pods = [a_pod("worker-0", "Failed", deleted=30), a_pod("worker-1", "Running")]
    assert list_actions(run_controller(a_job(worker={"replicas": 2, **ON_FAILURE}), *pods)) == []


def test_two_pods_in_one_place_are_left_alone() -> None:
    pods = [a_pod("worker-0", "Running"), a_pod("worker-0", "Failed")]
    step = run_controller(a_job(worker={}), *pods)
    assert (list_actions(step), replicas(step)) == ([], {"Worker": {}})


def test_pods_of_others_are_not_seen() -> None:
    foreign = a_pod("worker-0", "Succeeded")
    foreign["metadata"]["ownerReferences"][0]["uid"] = "an earlier job's"
    relabelled = a_pod("worker-0", "Succeeded")
    relabelled["metadata"]["labels"]["training.kubeflow.org/replica-index"] = "first"
    job = a_job(worker={})
    assert [list_actions(run_controller(job, pod, now=NOW))[:1] for pod in (foreign, relabelled)] == [
        ["CreatePod job-worker-0"],
        ["CreatePod job-worker-0"],
    ]

"""The default mode compared with the operator: one test for each deviation."""

from typing import Any

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
    services_of,
    stamp,
)

from backend_plugin.embedded.operators.base import JobSnapshot, ReconcileResult
from backend_plugin.embedded.operators.pytorchjob import reconcile, with_created_condition

STARTED = {"conditions": [a_condition("Created"), a_condition("Running")], "startTime": stamp()}
ON_FAILURE = {"restartPolicy": "OnFailure"}


def run_both(job: Any, *pods: Any, **more: Any) -> list[ReconcileResult]:
    """Run a pass in the default mode, and one in the mode of the operator."""
    return [run_controller(job, *pods, upstream=mode, **more) for mode in (False, True)]


def test_created_condition_is_written_with_the_first_status() -> None:
    job = a_job(worker={})
    ours, theirs = run_both(job)
    assert conditions(ours) == ["Created=True"]
    assert "conditions" not in theirs.status
    # The operator has this condition only in its cache.
    assert conditions(run_controller(with_created_condition(job, NOW), upstream=True)) == ["Created=True"]


def test_deadline_has_a_timer() -> None:
    job = a_job(worker={}, runPolicy={"activeDeadlineSeconds": 60}, status=STARTED)
    ours, theirs = run_both(job, a_pod("worker-0", "Running"))
    assert (ours.wake_at, theirs.wake_at) == (after(60), None)


def test_recreations_count_towards_the_backoff_limit() -> None:
    job = a_job(worker=ON_FAILURE, runPolicy={"backoffLimit": 1}, status=STARTED)
    steps = run_both(job, a_pod("worker-0", "Failed", exit=1))
    assert [conditions(step)[1:] for step in steps] == [["Running=False", "Failed=True"], ["Restarting=True"]]
    assert replicas(steps[1]) == {"Worker": {"failed": 1}}


def test_failure_has_a_completion_time() -> None:
    steps = run_both(
        a_job(worker={"restartPolicy": "ExitCode"}, status=STARTED), a_pod("worker-0", "Failed", exit=1)
    )
    assert [conditions(step)[1:] for step in steps] == [["Running=False", "Failed=True"]] * 2
    assert [(step.status or {}).get("completionTime") for step in steps] == [stamp(), None]


def test_failed_job_without_a_completion_time_expires() -> None:
    failed = {"conditions": [a_condition("Failed")]}
    ours, theirs = run_both(a_job(worker={}, runPolicy={"ttlSecondsAfterFinished": 5}, status=failed))
    assert ((ours.status or {})["completionTime"], ours.wake_at) == (stamp(), after(5))
    assert (theirs.status, theirs.wake_at) == (None, None)


def test_deadline_is_applied_before_the_job_is_deleted() -> None:
    policy = {"activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": 0}
    ours, theirs = run_both(a_job(worker={}, runPolicy=policy, status=STARTED))
    assert (list_actions(ours), conditions(ours)[-1]) == ([], "Failed=True")
    assert (list_actions(theirs), theirs.status) == (["DeleteJob"], None)
    next_pass = run_controller(a_job(worker={}, runPolicy=policy, status=ours.status))
    assert list_actions(next_pass) == ["DeleteJob"]


def test_job_has_one_terminal_condition() -> None:
    job = a_job(worker={"replicas": 2}, elasticPolicy={}, status=STARTED)
    pods = [a_pod("worker-0", "Succeeded"), a_pod("worker-1", "Failed")]
    assert [conditions(step)[1:] for step in run_both(job, *pods)] == [
        ["Running=False", "Succeeded=True"],
        ["Running=False", "Succeeded=True", "Failed=True"],
    ]


def test_failed_job_has_no_success_event() -> None:
    job = a_job(master={}, worker={"restartPolicy": "ExitCode"}, status=STARTED)
    pods = [a_pod("master-0", "Succeeded"), a_pod("worker-0", "Failed", exit=1)]
    recorded = [{event["reason"] for event in step.events} for step in run_both(job, *pods)]
    assert ["PyTorchJobSucceeded" in reasons for reasons in recorded] == [False, True]


def test_surplus_pods_are_not_created() -> None:
    nothing = a_job(worker={"replicas": 0}, status=STARTED)
    gap = a_job(worker={}, status=STARTED)
    pods = [a_pod("worker-0", "Running"), a_pod("worker-2", "Running", deleted=30)]
    assert [list_actions(step) for step in run_both(nothing)] == [
        [],
        ["CreatePod job-worker-0", "CreateService job-worker-0"],
    ]
    assert [list_actions(step) for step in run_both(gap, *pods)] == [
        ["DeleteService job-worker-2"],
        ["CreatePod job-worker-1", "CreateService job-worker-1", "DeleteService job-worker-2"],
    ]


def test_failed_surplus_pod_is_deleted_once() -> None:
    pods = [a_pod("worker-0", "Running"), a_pod("worker-1", "Failed")]
    job = a_job(worker=ON_FAILURE, status=STARTED)
    actions = ["DeletePod job-worker-1", "DeleteService job-worker-1"]
    assert [list_actions(step) for step in run_both(job, *pods)] == [actions] * 2


def test_terminating_surplus_pod_does_not_fail_the_job() -> None:
    pods = [a_pod("worker-0", "Pending"), a_pod("worker-1", "Running", deleted=30)]
    job = a_job(worker={}, status=STARTED)
    assert conditions(run_controller(job, *pods, upstream=True))[-1] == "Failed=True"
    assert conditions(run_controller({**job, "status": None}, *pods)) == ["Created=True"]


def test_unchanged_condition_is_not_written_again() -> None:
    restarting = {"conditions": [a_condition("Created"), a_condition("Restarting")], "startTime": stamp()}
    job = a_job(master=ON_FAILURE, worker=ON_FAILURE, status=restarting)
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Running", deleted=30)]
    statuses = [step.status or {} for step in run_both(job, *pods, now=after(9))]
    times = [[each["lastUpdateTime"] for each in status["conditions"]] for status in statuses]
    assert times == [[stamp(), stamp()], [stamp(), stamp(9)]]


def test_role_order_of_the_operator_determines_the_terminal_condition() -> None:
    job = a_job(master={}, worker={}, status=STARTED)
    pods = [a_pod("master-0", "Succeeded"), a_pod("worker-0", "Failed")]
    snapshot = JobSnapshot(job=job, pods=pods, services=services_of(pods), now=NOW)
    orders = (("Master", "Worker"), ("Worker", "Master"))
    ends = [conditions(reconcile(snapshot, upstream=True, order=order))[-1] for order in orders]
    assert ends == ["Succeeded=True", "Failed=True"]

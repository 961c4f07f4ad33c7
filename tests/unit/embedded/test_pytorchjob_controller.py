# ruff: noqa: E501 - a row a case
"""Rules of the PyTorchJob controller that no recorded history contains: its default mode, and events."""

from datetime import datetime, timedelta, timezone

import pytest
from kept_objects import job, stored

from backend_plugin.embedded.objects import get_key
from backend_plugin.embedded.operators import base
from backend_plugin.embedded.operators.pytorchjob.objects import build_action_event
from backend_plugin.embedded.operators.pytorchjob.reconciler import reconcile

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LABEL = "training.kubeflow.org/"
POD, SERVICE = ({"kind": kind, "metadata": {"name": "job-worker-0"}} for kind in ("Pod", "Service"))


def a_job(*, master=None, worker=None, status=None, **spec):
    """Build a stored job; `master` and `worker` contain the fields of their replica roles."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    given = {"Master": master, "Worker": worker}
    roles = {
        name: {"replicas": 1, "restartPolicy": "Never", "template": template, **role}
        for name, role in given.items()
        if role is not None
    }
    return {**stored(job("job", pytorchReplicaSpecs=roles, **spec), "uid-job"), "status": status or {}}


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def stamp(seconds=0):
    return after(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_condition(kind):
    times = {"lastUpdateTime": stamp(), "lastTransitionTime": stamp()}
    return {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": "", **times}


def a_pod(short, phase, *, restarts=0, deleted=None, **terminated):
    """Build a pod of the job. `deleted` is in seconds from `NOW`; `terminated` is its container's end."""
    role, _, index = short.partition("-")
    labels = {"operator-name": "pytorchjob-controller", "job-name": "job", "replica-type": role}
    state = {"terminated": terminated} if terminated else {"running": {}}
    container = {"name": "pytorch", "restartCount": restarts, "state": state}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"job-{short}",
            "labels": {LABEL + key: value for key, value in {**labels, "replica-index": index}.items()},
            "ownerReferences": [{"kind": "PyTorchJob", "name": "job", "uid": "uid-job", "controller": True}],
            **({} if deleted is None else {"deletionTimestamp": stamp(deleted)}),
        },
        "status": {"phase": phase, "containerStatuses": [container] if terminated or restarts else []},
    }


def run_controller(job, *pods, now=NOW):
    """Run one reconcile pass with a service for every pod."""
    services = [{"metadata": pod["metadata"]} for pod in pods]
    return reconcile(base.JobSnapshot(job=job, pods=pods, services=services, now=now))


def conditions(step):
    return [f"{each['type']}={each['status']}" for each in step.status["conditions"]]


def list_actions(step):
    assert all(isinstance(action, base.Delete) for action in step.actions)
    return [f"Delete{action.key.kind} {action.key.name}" for action in step.actions]


STARTED = {"conditions": [a_condition("Created"), a_condition("Running")], "startTime": stamp()}
ON_FAILURE = {"restartPolicy": "OnFailure"}
EXIT_CODE = {"restartPolicy": "ExitCode"}
TOO_LONG = "Job job has failed because it was active longer than specified deadline"


def messages(step):
    return [each["message"] for each in step.status["conditions"] if each["type"] == "Failed"]


def test_pod_recreation_above_the_backoff_limit_ends_the_job():
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exitCode=1, restarts=1)]
    policies = ({"backoffLimit": limit} for limit in (3, 2))
    jobs = (a_job(master={}, worker=ON_FAILURE, status=STARTED, runPolicy=each) for each in policies)
    goes_on, ends = (run_controller(each, *pods) for each in jobs)
    worker = goes_on.status["replicaStatuses"]["Worker"]
    assert (worker["failed"], worker["restarts"]) == (1, 2)
    assert list_actions(goes_on) == ["DeletePod job-worker-0"]
    assert conditions(ends) == ["Created=True", "Running=False", "Failed=True"]
    assert messages(ends) == ["Job job has failed because it has reached the specified backoff limit"]
    assert list_actions(ends) == [
        f"Delete{kind} job-{name}-0" for name in ("master", "worker") for kind in ("Pod", "Service")
    ]


@pytest.mark.parametrize(
    ("now", "policy", "failed", "wake_at"),
    [
        (59, {}, [], after(60)),
        (60, {}, [TOO_LONG], None),
        (60, {"ttlSecondsAfterFinished": 5}, [TOO_LONG], after(65)),
    ],
)
def test_deadline_is_exact_to_the_second(now, policy, failed, wake_at):
    job = a_job(worker={}, status=STARTED, runPolicy={"activeDeadlineSeconds": 60, **policy})
    step = run_controller(job, a_pod("worker-0", "Running"), now=after(now))
    assert (messages(step), step.wake_at) == (failed, wake_at)


@pytest.mark.parametrize(
    ("now", "policy", "actions", "wake_at"),
    [(59, {}, [], after(60)), (60, {}, ["DeletePyTorchJob job"], None), (99, {"suspend": True}, [], None)],
)
def test_finished_job_is_deleted_after_its_ttl(now, policy, actions, wake_at):
    done = {"conditions": [a_condition("Failed")], "completionTime": stamp()}
    job = a_job(worker={}, runPolicy={"ttlSecondsAfterFinished": 60, **policy}, status=done)
    step = run_controller(job, now=after(now))
    assert (list_actions(step), step.wake_at, step.status) == (actions, wake_at, None)


@pytest.mark.parametrize(
    ("job", "pods", "end"),
    [
        (a_job(worker=EXIT_CODE, status=STARTED), [a_pod("worker-0", "Failed", exitCode=1)], "Failed"),
        (a_job(worker={"replicas": 2}, elasticPolicy={}, status=STARTED), [a_pod("worker-0", "Succeeded"), a_pod("worker-1", "Failed")], "Succeeded"),
        (a_job(master={}, worker=EXIT_CODE, status=STARTED), [a_pod("master-0", "Succeeded"), a_pod("worker-0", "Failed", exitCode=1)], "Failed"),
    ],
    ids=["failure by exit code", "elastic success", "failure after the success of the master"],
)  # fmt: skip
def test_job_ends_once_with_one_event_and_a_completion_time(job, pods, end):
    step = run_controller(job, *pods)
    assert conditions(step)[1:] == ["Running=False", f"{end}=True"]
    assert step.status["completionTime"] == stamp()
    reasons = {event["reason"] for event in step.events}
    assert reasons & {"PyTorchJobSucceeded", "PyTorchJobFailed"} == {f"PyTorchJob{end}"}


def test_failed_job_without_a_completion_time_expires():
    failed = {"conditions": [a_condition("Failed")]}
    step = run_controller(a_job(worker={}, runPolicy={"ttlSecondsAfterFinished": 5}, status=failed))
    assert (step.status["completionTime"], step.wake_at) == (stamp(), after(5))


def test_deadline_is_applied_before_the_job_is_deleted():
    policy = {"activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": 0}
    step = run_controller(a_job(worker={}, runPolicy=policy, status=STARTED))
    assert (list_actions(step), conditions(step)[-1]) == ([], "Failed=True")
    next_pass = run_controller(a_job(worker={}, runPolicy=policy, status=step.status))
    assert list_actions(next_pass) == ["DeletePyTorchJob job"]


RUNS = a_pod("worker-0", "Running")
FAILED = a_pod("worker-1", "Failed", exitCode=1)
DELETED = a_pod("worker-2", "Running", deleted=30)


@pytest.mark.parametrize(
    ("worker", "pods", "actions"),
    [
        ({"replicas": 0}, [], []),
        ({}, [RUNS, DELETED], ["DeleteService job-worker-2"]),
        (ON_FAILURE, [RUNS, FAILED], ["DeletePod job-worker-1", "DeleteService job-worker-1"]),
    ],
    ids=["no replicas", "a gap", "a failed pod"],
)
def test_surplus_pods_are_not_created_and_deleted_once(worker, pods, actions):
    assert list_actions(run_controller(a_job(worker=worker, status=STARTED), *pods)) == actions


def test_terminating_surplus_pod_does_not_fail_the_job():
    step = run_controller(a_job(worker={}), a_pod("worker-0", "Pending"), DELETED)
    assert conditions(step) == ["Created=True"]


def test_unchanged_condition_is_not_written_again():
    restarting = {"conditions": [a_condition("Created"), a_condition("Restarting")], "startTime": stamp()}
    job = a_job(master=ON_FAILURE, worker=ON_FAILURE, status=restarting)
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Running", deleted=30)]
    step = run_controller(job, *pods, now=after(9))
    assert [each["lastUpdateTime"] for each in step.status["conditions"]] == [stamp(), stamp()]


@pytest.mark.parametrize(
    ("action", "reason", "message"),
    [
        (base.Create(POD), "CreatePod", "Created pod: job-worker-0"),
        (base.Create(SERVICE), "CreateService", "Created service: job-worker-0"),
        (base.Delete(get_key(POD)), "DeletePod", "Deleted pod: job-worker-0"),
        (base.Delete(get_key(SERVICE)), "DeleteService", "Deleted service: job-worker-0"),
        (base.Delete(get_key(a_job())), "DeletePod", "Deleted job: job"),
    ],
)
def test_action_event_has_the_reason_and_message_of_the_operator(action, reason, message):
    seen = base.JobSnapshot(job=a_job(worker={}), pods=[], services=[], now=NOW)
    event, refusal = build_action_event(seen, action), build_action_event(seen, action, "no")
    error = f"Error {'creating' if reason.startswith('Create') else 'deleting'}: no"
    assert (event["type"], event["reason"], event["message"]) == ("Normal", f"Successful{reason}", message)
    assert (refusal["type"], refusal["reason"], refusal["message"]) == ("Warning", f"Failed{reason}", error)

"""Events of a job: for actions, and for pods with problems."""

from typing import Any

import pytest
from operated_jobs import NOW, a_job, a_pod, run_controller, stamp

from backend_plugin.embedded.operators.actions import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    JobSnapshot,
)
from backend_plugin.embedded.operators.pytorchjob import build_action_event

MANIFEST = {"metadata": {"name": "job-worker-0"}}
SEEN = JobSnapshot(job=a_job(worker={}), pods=[], services=[], now=NOW)


def test_an_event_is_one_of_the_job() -> None:
    assert build_action_event(SEEN, DeletePod("job-worker-0")) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "job",
            "namespace": "ns",
            "uid": "uid-job",
        },
        "reason": "SuccessfulDeletePod",
        "message": "Deleted pod: job-worker-0",
        "type": "Normal",
        "source": {"component": "pytorchjob-controller"},
        "reportingComponent": "pytorchjob-controller",
        "firstTimestamp": stamp(),
        "lastTimestamp": stamp(),
        "count": 1,
    }


@pytest.mark.parametrize(
    ("action", "done", "refused"),
    [
        (
            CreatePod(MANIFEST),
            ("SuccessfulCreatePod", "Created pod: job-worker-0"),
            ("FailedCreatePod", "Error creating: no"),
        ),
        (
            CreateService(MANIFEST),
            ("SuccessfulCreateService", "Created service: job-worker-0"),
            ("FailedCreateService", "Error creating: no"),
        ),
        (
            DeletePod("job-worker-0"),
            ("SuccessfulDeletePod", "Deleted pod: job-worker-0"),
            ("FailedDeletePod", "Error deleting: no"),
        ),
        (
            DeleteService("job-worker-0"),
            ("SuccessfulDeleteService", "Deleted service: job-worker-0"),
            ("FailedDeleteService", "Error deleting: no"),
        ),
        (
            DeleteJob(),
            ("SuccessfulDeletePod", "Deleted job: job"),
            ("FailedDeletePod", "Error deleting: no"),
        ),
    ],
)
def test_actions_are_told_of_in_the_operators_words(action: Action, done: Any, refused: Any) -> None:
    told, refusal = build_action_event(SEEN, action), build_action_event(SEEN, action, "no")
    assert (told["type"], told["reason"], told["message"]) == ("Normal", *done)
    assert (refusal["type"], refusal["reason"], refusal["message"]) == ("Warning", *refused)


def a_container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "state": state}


BACK_OFF = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
OUT_OF_MEMORY = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "of 1Gi"}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, []),
        (
            {"containerStatuses": [a_container("pytorch", **BACK_OFF), a_container("side", running={})]},
            [
                (
                    "ImagePullBackOff",
                    "Error pod job-worker-0 container pytorch waiting message: Back-off pulling image",
                )
            ],
        ),
        (
            {"containerStatuses": [a_container("side", **OUT_OF_MEMORY)]},
            [("OOMKilled", "Error pod job-worker-0 container side exitCode: 137 terminated message: of 1Gi")],
        ),
        ({"containerStatuses": [a_container("side", terminated={"exitCode": 0})]}, []),
        ({"containerStatuses": [a_container("side", waiting={"reason": "PodInitializing"})]}, []),
        (
            {"initContainerStatuses": [a_container("init", **OUT_OF_MEMORY)]},
            [("OOMKilled", "Error pod job-worker-0 container init exitCode: 137 terminated message: of 1Gi")],
        ),
        (
            {"conditions": [UNSCHEDULABLE]},
            [("Unschedulable", "Error pod job-worker-0 condition message: 0/3 nodes")],
        ),
        (
            {
                "conditions": [
                    {**UNSCHEDULABLE, "lastTransitionTime": stamp()},
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(9)},
                ]
            },
            [],
        ),
    ],
)
def test_trouble_with_an_active_pod_is_told(status: Any, expected: Any) -> None:
    pod = a_pod("worker-0", "Pending")
    step = run_controller(a_job(worker={}), {**pod, "status": {"phase": "Pending", **status}})
    assert [(event["type"], event["reason"], event["message"]) for event in step.events] == [
        ("Warning", *each) for each in expected
    ]


def test_of_a_pod_that_is_being_deleted_nothing_is_told() -> None:
    pod = a_pod("worker-0", "Pending", deleted=30)
    step = run_controller(
        a_job(worker={}), {**pod, "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}}
    )
    assert step.events == ()

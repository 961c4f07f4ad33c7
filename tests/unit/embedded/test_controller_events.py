"""Events of a job: for actions, and for pods with problems."""

from typing import Any

import pytest
from operated_jobs import NOW, a_job, a_pod, run_controller

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
def test_action_event_has_the_reason_and_message_of_the_operator(
    action: Action, done: Any, refused: Any
) -> None:
    event, refusal = build_action_event(SEEN, action), build_action_event(SEEN, action, "no")
    assert (event["type"], event["reason"], event["message"]) == ("Normal", *done)
    assert (refusal["type"], refusal["reason"], refusal["message"]) == ("Warning", *refused)


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def test_pod_that_is_being_deleted_has_no_event() -> None:
    pod = a_pod("worker-0", "Pending", deleted=30)
    step = run_controller(
        a_job(worker={}), {**pod, "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}}
    )
    assert step.events == ()

"""Events of a job, and replicas that the operator cannot create."""

from typing import Any

import pytest
from operated_jobs import NOW, a_job, run_controller

from backend_plugin.embedded.operators.base import (
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
    ("action", "reason", "message"),
    [
        (CreatePod(MANIFEST), "CreatePod", "Created pod: job-worker-0"),
        (CreateService(MANIFEST), "CreateService", "Created service: job-worker-0"),
        (DeletePod("job-worker-0"), "DeletePod", "Deleted pod: job-worker-0"),
        (DeleteService("job-worker-0"), "DeleteService", "Deleted service: job-worker-0"),
        (DeleteJob(), "DeletePod", "Deleted job: job"),
    ],
)
def test_action_event_has_the_reason_and_message_of_the_operator(
    action: Action, reason: str, message: str
) -> None:
    event, refusal = build_action_event(SEEN, action), build_action_event(SEEN, action, "no")
    error = f"Error {'creating' if reason.startswith('Create') else 'deleting'}: no"
    assert (event["type"], event["reason"], event["message"]) == ("Normal", f"Successful{reason}", message)
    assert (refusal["type"], refusal["reason"], refusal["message"]) == ("Warning", f"Failed{reason}", error)


NAMELESS = {"spec": {"containers": [{"name": "main", "image": "a"}]}}


@pytest.mark.parametrize(
    "job",
    [
        a_job(master={"template": NAMELESS}),
        a_job(master={}, elasticPolicy={}),
        a_job(worker={"template": NAMELESS}, elasticPolicy={}),
    ],
    ids=["no port of the master's", "no worker to meet at", "no port of the worker's"],
)
def test_replica_without_complete_rendezvous_information_is_not_created(job: dict[str, Any]) -> None:
    step = run_controller(job)
    assert (step.status, step.actions) == (None, ())

"""Replicas that the operator cannot create."""

from typing import Any

import pytest
from operated_jobs import a_job, run_controller

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

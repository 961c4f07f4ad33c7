"""The pods and services that the operator creates."""

from typing import Any

import pytest
from operated_jobs import a_job, run_controller

MASTER_SAYS = {
    "MASTER_PORT": "23456",
    "PET_MASTER_PORT": "23456",
    "MASTER_ADDR": "job-master-0",
    "PET_MASTER_ADDR": "job-master-0",
}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}


ADDED = [
    {"name": name, "value": value}
    for name, value in {
        "PYTHONUNBUFFERED": "1",
        **MASTER_SAYS,
        "WORLD_SIZE": "4",
        "RANK": "1",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_NNODES": "2",
    }.items()
]
WAITING = (
    "err=1;for i in $(seq 100); do if nslookup job-master-0; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


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

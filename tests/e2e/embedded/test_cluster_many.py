"""Jobs with many replicas."""

import pytest

from e2e.embedded.emulated import cpus, job, named, role

MANY = 400


@pytest.fixture
def options():
    return {"capacity": {"cpu": "1"}}


async def test_deletion_of_a_large_job_leaves_no_pod(cluster, recorded):
    # The pods fit on no node, so no process starts.
    await cluster.create(job(Worker=role("exit 0", MANY, resources=cpus("64"))))
    await recorded.wait_until(lambda: len(recorded.events("FailedScheduling")) == MANY)
    assert len(recorded.pods) == MANY
    await cluster.delete(named())
    await recorded.wait_until(lambda: not recorded.pods)


async def test_failed_job_stays_failed_after_its_pods_are_deleted(cluster, recorded):
    # The pods that do not fit are deleted immediately, as is the failed one, from which the failure follows.
    worker = role("exit 200", MANY, "ExitCode", resources=cpus("1"))
    await cluster.create(job(Worker=worker, run_policy={"backoffLimit": 1}))
    await recorded.state("Failed")
    await recorded.wait_until(lambda: not recorded.pods)
    assert len(recorded.events("SuccessfulCreatePod")) == MANY

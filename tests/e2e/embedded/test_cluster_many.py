"""Jobs with many replicas do not block other requests."""

import asyncio

import pytest

from backend_plugin.core.observed import Pod
from backend_plugin.embedded import job_reconciler, scheduler
from e2e.embedded.emulated import cpus, job, named, role


@pytest.fixture
def options():
    return {"capacity": {"cpu": "1"}}


MANY = 4 * max(job_reconciler.AT_ONCE, scheduler.AT_ONCE)


def many(replicas=MANY):
    """Build a job that fits on no node, so that no process starts."""
    return job(Worker=role("exit 0", replicas, resources=cpus("64")))


def changes(recorded):
    return sum(isinstance(each, Pod) for each in recorded.changes)


async def test_pods_are_created_and_scheduled_in_batches(cluster, recorded):
    await cluster.create(many())
    most = before = 0
    while len(recorded.events("FailedScheduling")) < MANY:
        await asyncio.sleep(0)
        now = changes(recorded)
        most, before = max(most, now - before), now
    assert len(recorded.pods) == MANY
    # One iteration of the event loop may create some pods and schedule others.
    assert most <= job_reconciler.AT_ONCE + scheduler.AT_ONCE


async def test_pods_of_a_deleted_job_are_deleted_in_batches(cluster, recorded):
    await cluster.create(many())
    await recorded.wait_until(lambda: len(recorded.events("FailedScheduling")) == MANY)
    await cluster.delete(named())
    most, before = 0, MANY
    while recorded.pods:
        await asyncio.sleep(0)
        most, before = max(most, before - len(recorded.pods)), len(recorded.pods)
    assert most <= job_reconciler.AT_ONCE


async def test_job_deleted_during_pod_creation_leaves_no_pod(cluster, recorded):
    await cluster.create(many())
    await recorded.wait_until(lambda: recorded.pods)
    assert len(recorded.pods) < MANY
    await cluster.delete(named())
    await recorded.wait_until(lambda: not recorded.pods)
    await cluster.create(many(1))
    await recorded.phase("Pending", "j-worker-0")
    assert len(recorded.pods) == 1


async def test_failed_job_stays_failed_if_its_pods_are_deleted_in_several_batches(cluster, recorded):
    # The pods that do not fit are deleted immediately, as is the failed one, from which the failure follows.
    replicas = job_reconciler.AT_ONCE + 10
    worker = role("exit 200", replicas, "ExitCode", resources=cpus("1"))
    await cluster.create(job(Worker=worker, run_policy={"backoffLimit": 1}))
    await recorded.state("Failed")
    await recorded.wait_until(lambda: not recorded.pods)
    assert len(recorded.events("SuccessfulCreatePod")) == replicas

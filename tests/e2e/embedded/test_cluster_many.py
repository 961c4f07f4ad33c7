"""Jobs with many replicas: their deletion during the creation of pods, and the limit."""

import pytest

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.operators.pytorchjob.webhook import MOST_REPLICAS
from e2e.embedded.emulated import cpus, job, named, opened, role

MANY = 100


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def many(replicas=MANY):
    """Build a job that fits on no node, so that no process starts."""
    return job(Worker=role("exit 0", replicas, resources=cpus("64")))


async def test_job_deleted_during_pod_creation_leaves_no_pod(state):
    async with opened(state, capacity={"cpu": "1"}) as (cluster, seen):
        await cluster.create(many())
        await seen.wait_until(lambda: seen.pods)
        await cluster.delete(named())
        await seen.wait_until(lambda: not seen.pods)
        await cluster.create(many(1))
        await seen.phase("Pending", "j-worker-0")
        assert len(seen.pods) == 1


async def test_job_above_the_replica_limit_is_rejected(state):
    async with opened(state) as (cluster, _):
        with pytest.raises(RequestRejected, match=f"in total, has {MOST_REPLICAS + 1}"):
            await cluster.create(many(MOST_REPLICAS + 1))
        assert await cluster.get(named()) is None

"""Prerequisites of jobs: the scan sets missing owners, and deletes those without a job."""

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from backend_plugin.core.observed import Job
from backend_plugin.core.values import Manifest
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.prerequisites import LEAST_AGE, Prerequisites

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OLD, NEW = NOW - LEAST_AGE - timedelta(seconds=1), NOW - timedelta(minutes=1)


class Runtimes:
    """A cluster with TrainingRuntimes."""

    def __init__(self, **created: datetime) -> None:
        self.items: dict[str, Any] = {
            name: {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainingRuntime",
                "metadata": {"name": name, "namespace": "n", "creationTimestamp": at.isoformat()},
            }
            for name, at in created.items()
        }

    async def list_prerequisites(self) -> list[Manifest]:
        return [*self.items.values()]

    async def delete_companion(self, manifest: Manifest) -> None:
        metadata: Any = manifest["metadata"]
        del self.items[metadata["name"]]

    async def patch_object(self, manifest: Manifest, patch: Manifest) -> None:
        metadata: Any = manifest["metadata"]
        self.items[metadata["name"]]["metadata"] |= patch["metadata"]


async def scan(cluster: Runtimes, *jobs: Job) -> dict[str, list[str]]:
    """Return the uids of the owners of each runtime after a scan."""
    cache = Cache(lambda: NOW)
    cache.replace_records(Job, [("n", job) for job in jobs])
    orders = BackgroundOperations(Metrics())
    prerequisites = Prerequisites(cluster, cache, orders, lambda: NOW)  # type: ignore[arg-type]
    await prerequisites.scan()
    while len(orders):
        await asyncio.sleep(0.005)
    return {
        name: [owner["uid"] for owner in each["metadata"].get("ownerReferences", [])]
        for name, each in cluster.items.items()
    }


@pytest.mark.parametrize(
    ("created", "jobs", "owners"),
    [
        (NEW, [Job(name="a", namespace="n", uid="u", dialect="TrainJob")], {"a": ["u"]}),
        (NEW, [Job(name="a", namespace="n", uid="u", dialect="PyTorchJob")], {}),
        (NEW, [], {"a": []}),
        (OLD, [], {}),
    ],
    ids=["of a job", "of a job of another dialect", "young", "old"],
)
def test_ownerless_runtime_is_adopted_kept_or_deleted_by_job_and_age(
    created: datetime, jobs: list[Job], owners: dict[str, list[str]]
) -> None:
    assert asyncio.run(scan(Runtimes(a=created), *jobs)) == owners


def test_a_runtime_with_an_owner_is_kept() -> None:
    cluster = Runtimes(a=OLD)
    cluster.items["a"]["metadata"]["ownerReferences"] = [{"uid": "gone"}]
    assert asyncio.run(scan(cluster)) == {"a": ["gone"]}

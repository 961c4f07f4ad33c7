"""Tests of the owners of several prerequisites of one job."""

from typing import Any

from backend_plugin.core.dialects.trainjob.resource import RUNTIME
from backend_plugin.core.observed import Job
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.prerequisites import Prerequisites


class PatchedObjects:
    """A cluster that records the names of the objects that it patches."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def patch_object(self, manifest: Any, _: Any) -> None:
        self.names.append(manifest["metadata"]["name"])


async def test_each_prerequisite_of_a_job_gets_its_owner() -> None:
    cluster: Any = PatchedObjects()
    unused: Any = None
    orders = BackgroundOperations(Metrics())
    runtimes = [{"kind": RUNTIME.kind, "metadata": {"name": name}} for name in ("a", "b")]
    job = Job(name="j", namespace="ns", uid="u", dialect="TrainJob")
    Prerequisites(cluster, unused, orders, unused).own(job, runtimes)
    await orders.drain(5.0)
    assert sorted(cluster.names) == ["a", "b"]

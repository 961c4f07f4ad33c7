"""Companion objects and job events in the embedded cluster."""

from pathlib import Path
from typing import Any

import pytest

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling import companions
from backend_plugin.shell.cluster import AlreadyExists
from e2e.embedded.emulated import OURS, job, named, opened, role


def with_group(made: Any) -> Any:
    """Build the pod group of a job, as the server creates it."""
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
    annotations = {companions.ANNOTATION: companions.encode([group])}
    metadata = {**made["metadata"], "annotations": annotations}
    (manifest,) = companions.read_companions(read_job({**made, "metadata": metadata}))
    return manifest


async def test_pod_group_is_stored_and_deleted_with_its_job(tmp_path: Path) -> None:
    async with opened(tmp_path) as (cluster, recorded):
        made = await cluster.create(job(Worker=role("sleep 60", replicas=2)))
        group = with_group(made)
        assert group["metadata"]["labels"][OURS]
        await cluster.create(group)
        with pytest.raises(AlreadyExists):
            await cluster.create(group)
        await recorded.wait_until(lambda: recorded.records[PodGroup])
        # No gang scheduler reads the pod group, so the pods are scheduled one at a time.
        await recorded.phase("Running", "j-worker-0", "j-worker-1")
        await cluster.delete(named())
        await recorded.wait_until(lambda: not recorded.records[PodGroup])
        again = await cluster.create(job("k", Worker=role("sleep 60")))
        await cluster.create(with_group(again))
        await cluster.delete_companion(with_group(again))
        await cluster.delete_companion(with_group(again))
        assert not recorded.records[PodGroup]


async def test_recorded_job_event_is_watched_only_for_the_matching_uid(tmp_path: Path) -> None:
    async with opened(tmp_path) as (cluster, recorded):
        made: Any = await cluster.create(job(Worker=role("sleep 60")))
        about = {"kind": "PyTorchJob", "namespace": "a", "name": "j", "uid": made["metadata"]["uid"]}
        fields = {"reason": "Resumed", "message": "1 of 1 replicas ready", "type": "Normal"}
        await cluster.record_event({**fields, "involvedObject": about})
        # A later job of the same name has another uid.
        await cluster.record_event({**fields, "involvedObject": {**about, "uid": "other"}})
        (event,) = await recorded.wait_until(lambda: recorded.events("Resumed"))
        assert (event.kind, event.name, event.message) == ("PyTorchJob", "j", fields["message"])

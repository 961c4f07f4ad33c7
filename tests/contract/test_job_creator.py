"""The creation of a job with a prerequisite, of which admission may reject a repeated or an early create."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import a_run, a_template

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.store import system_clock
from backend_plugin.shell import job_creator
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.capabilities_cache import NO_CAPABILITIES
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable, ObjectName
from backend_plugin.shell.credentials import KeyRing

PLANNED = plan(
    a_template({"masterReplicas": {"replicas": 1}}), a_run(), read({"kfpytorch": {"dialect": "trainjob"}})
)
PREMATURE = RequestRejected(403, "Forbidden", "specified trainingRuntime must be created before the TrainJob")
DENIED = RequestRejected(403, "Forbidden", "must not have reserved envs")


class Trainer:
    """A cluster whose webhook rejects TrainJobs with these errors, one for each create."""

    def __init__(self, *errors: RequestRejected, there: tuple[str, ...] = ()) -> None:
        self.errors = [*errors]
        self.objects: dict[str, Any] = {
            each["kind"]: each for each in PLANNED.manifests if each["kind"] in there
        }

    async def create(self, manifest: Manifest) -> Manifest:
        kind = str(manifest["kind"])
        if kind == "TrainJob" and self.errors:
            raise self.errors.pop(0)
        if kind in self.objects:
            raise AlreadyExists(kind)
        self.objects[kind] = manifest
        return manifest

    async def get(self, name: ObjectName) -> Manifest | None:
        return self.objects.get(name.dialect)

    async def delete_companion(self, manifest: Manifest) -> None:
        del self.objects[str(manifest["kind"])]


def create(cluster: Trainer, folder: Path) -> bool:
    """Return True if the job is new."""
    creator = job_creator.JobCreator(
        cluster,  # type: ignore[arg-type]
        Cache(system_clock),
        NO_CAPABILITIES,
        KeyRing.from_directory(folder, accepts_unsigned=True),
    )
    return asyncio.run(creator.create_or_find(PLANNED, a_run()))[1]


def test_job_is_created_once_its_operator_has_observed_the_runtime(tmp_path: Path) -> None:
    cluster = Trainer(PREMATURE, PREMATURE)
    assert create(cluster, tmp_path)
    assert cluster.objects.keys() == {"TrainJob", "TrainingRuntime"}


def test_unobserved_runtime_is_a_transient_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(job_creator, "_PREMATURE_SECONDS", 0.0)
    cluster = Trainer(PREMATURE)
    with pytest.raises(ClusterUnavailable):
        create(cluster, tmp_path)
    assert cluster.objects.keys() == {"TrainingRuntime"}


def test_rejected_job_leaves_no_runtime(tmp_path: Path) -> None:
    cluster = Trainer(DENIED)
    with pytest.raises(RequestRejected):
        create(cluster, tmp_path)
    assert not cluster.objects


def test_existing_job_is_adopted_and_keeps_its_runtime(tmp_path: Path) -> None:
    cluster = Trainer(DENIED, there=("TrainJob", "TrainingRuntime"))
    assert not create(cluster, tmp_path)
    assert cluster.objects.keys() == {"TrainJob", "TrainingRuntime"}

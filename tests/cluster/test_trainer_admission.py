"""The real API server and webhooks of Trainer answer requests with the codes of the embedded cluster."""

from collections.abc import Iterator, Mapping
from typing import Any

from rig.api import path_of
from rig.trainer import TrainerCluster
from trainjob_requests import CHANGES, CREATIONS, NAMESPACE, RUNTIMES, build_objects, change_replicated_job

from backend_plugin.embedded.admission import merge_patch


def test_status_codes_equal_those_of_the_embedded_cluster(trainer_cluster: TrainerCluster) -> None:
    trainer_cluster.plane.namespace(NAMESPACE)
    api, (job, runtime) = trainer_cluster.plane.admin, build_objects()
    api.create(runtime)
    # Trainer rejects the job until its cache contains the runtime.
    trainer_cluster.trainer.wait_until(lambda: api.request("POST", path_of(job), job).is_success)
    path = f"{path_of(job)}/{job['metadata']['name']}"

    def list_codes() -> Iterator[tuple[str, int, int]]:
        for name, (change, code) in CREATIONS.items():
            body: Mapping[str, Any] = merge_patch(merge_patch(job, {"metadata": {"name": "other"}}), change)
            yield f"create: {name}", api.try_create({**body}).status_code, code
        for name, (change, code) in CHANGES.items():
            yield f"change: {name}", api.try_patch(path, change, dryRun="All").status_code, code
        for name, (change, code) in RUNTIMES.items():
            body = merge_patch(change_replicated_job(runtime, change), {"metadata": {"name": "other"}})
            yield f"runtime: {name}", api.try_create({**body}).status_code, code

    assert [each for each in list_codes() if each[1] != each[2]] == []

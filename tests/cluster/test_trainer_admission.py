"""The real API server and webhooks of Trainer store objects and answer requests as the embedded cluster."""

from rig.api import path_of
from rig.trainer import TrainerCluster
from trainjob_requests import NAMESPACE, build_objects

from backend_plugin.embedded.objects import merge_patch
from backend_plugin.embedded.operators.table import OPERATORS

OPERATOR = OPERATORS["TrainJob"]


def test_objects_are_stored_as_in_the_embedded_cluster(trainer_cluster: TrainerCluster) -> None:
    assert OPERATOR.prerequisite is not None
    trainer_cluster.plane.namespace(NAMESPACE)
    api, (job, runtime) = trainer_cluster.plane.admin, build_objects()
    assert api.create(runtime)["spec"] == OPERATOR.prerequisite.admit(runtime)["spec"]
    # Trainer rejects the job until its cache contains the runtime.
    trainer_cluster.trainer.wait_until(lambda: api.request("POST", path_of(job), job).is_success)
    stored = api.get(f"{path_of(job)}/{job['metadata']['name']}")
    assert stored is not None
    assert stored["spec"] == OPERATOR.admit(job)["spec"]


def test_job_without_its_runtime_is_rejected(trainer_cluster: TrainerCluster) -> None:
    trainer_cluster.plane.namespace(NAMESPACE)
    missing = {"metadata": {"name": "other"}, "spec": {"runtimeRef": {"name": "missing"}}}
    answer = trainer_cluster.plane.admin.try_create({**merge_patch(build_objects()[0], missing)})
    assert answer.status_code == 403
    assert OPERATOR.dialect.is_premature(answer.json()["message"])

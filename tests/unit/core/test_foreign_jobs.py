"""The phases of foreign jobs, from the manifests of both kinds."""

import pytest

from backend_plugin.core import foreign_jobs
from backend_plugin.core.dialects.table import DIALECTS, read_job_without_pods
from backend_plugin.core.judging.verdict import Phase


def conditions(**types: str):
    found = [{"type": kind, "status": status, "message": f"is {kind}"} for kind, status in types.items()]
    return {"conditions": found}


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("PyTorchJob", {}, Phase.INITIALIZING),
        ("PyTorchJob", conditions(Created="True"), Phase.INITIALIZING),
        ("PyTorchJob", conditions(Created="True", Running="True"), Phase.RUNNING),
        ("PyTorchJob", conditions(Created="True", Suspended="True"), Phase.QUEUED),
        ("PyTorchJob", conditions(Running="False", Succeeded="True"), Phase.SUCCEEDED),
        ("PyTorchJob", conditions(Running="False", Failed="True"), Phase.FAILED),
        ("TrainJob", {}, Phase.INITIALIZING),
        ("TrainJob", {"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}, Phase.INITIALIZING),
        ("TrainJob", {"jobsStatus": [{"name": "a", "ready": 0}, {"name": "b", "ready": 1}]}, Phase.RUNNING),
        ("TrainJob", {**conditions(Suspended="False"), "jobsStatus": [{"ready": 1}]}, Phase.RUNNING),
        ("TrainJob", conditions(Suspended="True"), Phase.QUEUED),
        ("TrainJob", {**conditions(Complete="True"), "jobsStatus": [{"ready": 1}]}, Phase.SUCCEEDED),
        ("TrainJob", conditions(Failed="True"), Phase.FAILED),
    ],
)
def test_phase_of_a_foreign_job_is_derived_from_its_conditions(kind, status, expected):
    job = read_job_without_pods(DIALECTS[kind], {"kind": kind, "metadata": {"name": "x"}, "status": status})
    assert foreign_jobs.describe(job).phase is expected


def test_foreign_job_has_the_message_of_its_condition_and_a_command_that_deletes_it():
    metadata = {"name": "x", "namespace": "ns"}
    manifest = {"kind": "TrainJob", "metadata": metadata, "status": conditions(Failed="True")}
    job = read_job_without_pods(DIALECTS["TrainJob"], manifest)
    assert foreign_jobs.describe(job).message == "is Failed"
    command = "kubectl delete trainjobs.trainer.kubeflow.org x --namespace ns"
    assert foreign_jobs.format_refusal(job).endswith(command)

"""Tests for orphan candidates, for the owner patch of a job and for foreign jobs."""

import json
from datetime import timedelta

import pytest
from cluster import BEGAN, FAILED, RUNNING, SUCCEEDED, job
from cluster_pods import with_metadata

from backend_plugin.core import foreign_jobs, ownership
from backend_plugin.core.dialects.table import DIALECTS, read_job
from backend_plugin.core.dialects.trainjob.reader import read_without_pods
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.embedded.objects import merge_patch

HOUR = timedelta(hours=1)
OWNER = OwnerReference(api_version="flyte.lyft.com/v1alpha1", kind="FlyteWorkflow", name="f1", uid="u1")


def ours(manifest, *, execution: str = "f1", prefix: str = "s3://b/f1/n0/0", **metadata):
    annotations = {
        "kfpytorch.flyte.org/task": json.dumps({"execution": execution, "nodeId": "n0"}),
        "kfpytorch.flyte.org/output-prefix": prefix,
        **metadata.pop("annotations", {}),
    }
    return with_metadata(manifest, annotations=annotations, **metadata)


def execution_in_question(manifest, after: timedelta = 3 * HOUR) -> str | None:
    run = ownership.find_orphan_candidate(read_job(manifest), BEGAN + after, HOUR)
    return None if run is None else run.execution


MANIFESTS = {
    "it has not begun": (ours(job(started=None)), "f1"),
    "it expires, but only after its end": (ours(job(RUNNING, ttlSecondsAfterFinished=60)), "f1"),
    "it failed": (ours(job(FAILED)), "f1"),
    "it has another owner": (ours(job(RUNNING), ownerReferences=[{"kind": "Other", "uid": "u1"}]), None),
    "it is being deleted": (ours(job(RUNNING), deletionTimestamp="2026-01-01T00:01:00Z"), None),
    "its age is unknown": (ours(job(RUNNING), creationTimestamp=None), None),
    "it expires": (ours(job(SUCCEEDED, ttlSecondsAfterFinished=60)), None),
    "it is of no execution": (ours(job(RUNNING), execution=""), None),
    "its output prefix is unknown": (ours(job(RUNNING), prefix=""), None),
    "it is not ours": (job(RUNNING), None),
}


@pytest.mark.parametrize(("manifest", "execution"), MANIFESTS.values(), ids=MANIFESTS)
def test_old_job_without_an_owner_is_an_orphan_candidate(manifest, execution):
    assert execution_in_question(manifest) == execution


def test_job_becomes_an_orphan_candidate_after_a_delay_from_creation_and_end():
    assert execution_in_question(ours(job(RUNNING)), HOUR - timedelta(seconds=1)) is None
    assert execution_in_question(ours(job(RUNNING)), HOUR) == "f1"
    assert execution_in_question(ours(job(SUCCEEDED)), HOUR) is None
    assert execution_in_question(ours(job(SUCCEEDED)), HOUR + timedelta(seconds=100)) == "f1"


@pytest.mark.parametrize("owner", [OWNER, None], ids=["its owner is found", "its execution is elsewhere"])
def test_job_with_an_ownership_patch_is_no_orphan_candidate(owner):
    manifest = ours(job(RUNNING))
    patched = merge_patch(manifest, ownership.build_ownership_patch(owner))
    assert execution_in_question(patched) is None
    owners = patched["metadata"].pop("ownerReferences", [])
    assert [each["uid"] for each in owners] == ([] if owner is None else ["u1"])
    marks = patched["metadata"]["annotations"]
    assert marks.pop(ownership.WORKFLOW, "") == ("other-cluster" if owner is None else "")
    assert patched == manifest


def conditions(**types: str):
    found = [{"type": kind, "status": status, "message": f"is {kind}"} for kind, status in types.items()]
    return {"conditions": found}


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
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
    read = DIALECTS[kind].read_without_pods or DIALECTS[kind].read
    job = read({"kind": kind, "metadata": {"name": "x"}, "status": status})
    assert foreign_jobs.describe(job).phase is expected


def test_foreign_job_has_the_message_of_its_condition_and_a_command_that_deletes_it():
    metadata = {"name": "x", "namespace": "ns"}
    job = read_without_pods({"kind": "TrainJob", "metadata": metadata, "status": conditions(Failed="True")})
    assert foreign_jobs.describe(job).message == "is Failed"
    command = "kubectl delete trainjobs.trainer.kubeflow.org x --namespace ns"
    assert foreign_jobs.format_refusal(job).endswith(command)

"""Errors of the API server for the metadata of a PyTorchJob, which it reports before all other errors."""

from typing import Any

import pytest

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.operators.pytorchjob import admit_job

OWNER = {"apiVersion": "v1", "kind": "Kind", "name": "name", "uid": "uid"}


def a_job(**metadata: Any) -> dict[str, Any]:
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "a"}]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": "ns", **metadata},
        "spec": {"pytorchReplicaSpecs": {"Worker": role}},
    }


def refusal(manifest: Any) -> tuple[int, str, str]:
    with pytest.raises(RequestRejected) as refused:
        admit_job(manifest)
    return refused.value.code, refused.value.reason, refused.value.message


def test_owner_references_must_be_complete() -> None:
    owner = {**OWNER, "controller": True}
    job = a_job(ownerReferences=[{**owner, "unknown": 1, "blockOwnerDeletion": None}])
    assert admit_job(job) == a_job(ownerReferences=[owner])
    path = 'PyTorchJob.kubeflow.org "job" is invalid: [metadata.ownerReferences'
    assert refusal(a_job(ownerReferences=[None])) == (
        422,
        "Invalid",
        f'{path}.apiVersion: Invalid value: "": version must not be empty,'
        ' metadata.ownerReferences.kind: Invalid value: "": must not be empty,'
        ' metadata.ownerReferences.name: Invalid value: "": must not be empty,'
        ' metadata.ownerReferences.uid: Invalid value: "": must not be empty]',
    )
    code, _, message = refusal(a_job(ownerReferences=[owner, {**owner, "name": "other"}]))
    assert (code, message.endswith('"true" in references for Kind/name and Kind/other')) == (422, True)


@pytest.mark.parametrize(
    "metadata",
    [
        "job",
        {"name": 1},
        {"labels": {"a": True}},
        {"annotations": []},
        {"finalizers": {}},
        {"finalizers": [1]},
        {"ownerReferences": [1]},
        {"ownerReferences": [{**OWNER, "uid": 1}]},
        {"ownerReferences": [{**OWNER, "controller": "x"}]},
    ],
    ids=str,
)
def test_malformed_metadata_is_rejected_first(metadata: Any) -> None:
    assert refusal({**a_job(), "metadata": metadata, "spec": 1})[:2] == (400, "BadRequest")

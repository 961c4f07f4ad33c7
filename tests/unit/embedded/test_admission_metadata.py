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


def test_owners_are_whole() -> None:
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
    ("metadata", "said"),
    [
        ("job", "string into Go value of type v1.ObjectMeta"),
        ({"name": 1}, "number into Go struct field ObjectMeta.name of type string"),
        ({"labels": {"a": True}}, "bool into Go struct field ObjectMeta.labels of type string"),
        ({"annotations": []}, "array into Go struct field ObjectMeta.annotations of type map[string]string"),
        ({"finalizers": {}}, "object into Go struct field ObjectMeta.finalizers of type []string"),
        ({"finalizers": [1]}, "number into Go struct field ObjectMeta.finalizers of type string"),
        (
            {"ownerReferences": [1]},
            "number into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference",
        ),
        (
            {"ownerReferences": [{**OWNER, "uid": 1}]},
            "number into Go struct field OwnerReference.ownerReferences.uid of type types.UID",
        ),
        (
            {"ownerReferences": [{**OWNER, "controller": "x"}]},
            "string into Go struct field OwnerReference.ownerReferences.controller of type bool",
        ),
    ],
)
def test_metadata_that_cannot_be_read_is_refused_first(metadata: Any, said: str) -> None:
    begins = 'PyTorchJob in version "v1" cannot be handled as a PyTorchJob: json: cannot unmarshal '
    assert refusal({**a_job(), "metadata": metadata, "spec": 1}) == (400, "BadRequest", begins + said)

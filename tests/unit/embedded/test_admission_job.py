"""API admission of PyTorchJobs: errors of the API server and the operator's webhook, and defaults."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from kept_objects import AT_ONCE

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import merge_patch
from backend_plugin.embedded.operators.pytorchjob import admit_job, admit_job_update

CAUSE = re.compile(
    r"([^\s:[\]]+(?:\[\w+\][^\s:]*)*): "
    r"(Required value|Invalid value|Unsupported value|Duplicate value|Forbidden)"
)
OF_NO_WORKER = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}}
OF_QUEUE_B = {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}}


def reject(admit: Callable[..., object], *objects: Any) -> tuple[int, str]:
    """Return the code of the rejection, and the fields and kinds of its causes."""
    with pytest.raises(RequestRejected) as refused:
        admit(*objects)
    causes = CAUSE.findall(refused.value.message)
    return refused.value.code, ", ".join(f"{field}: {kind}" for field, kind in causes)


def a_spec(**role: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    return {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template, **role}}}


def a_job(spec: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": "ns", **metadata},
        "spec": a_spec() if spec is None else spec,
    }


def a_pod(**spec: Any) -> dict[str, Any]:
    """Build a job with worker pods that have this spec."""
    return a_job(a_spec(template={"spec": {"containers": [{"name": "pytorch", "image": "a"}], **spec}}))


def a_container(**fields: Any) -> dict[str, Any]:
    return a_pod(containers=[{"name": "pytorch", "image": "a", **fields}])


def test_null_fields_are_removed() -> None:
    job = a_pod(nodeSelector={"a": None, "b": "c"}, hostname=None)
    job["spec"] |= {"nprocPerNode": None, "runPolicy": {"suspend": None, "managedBy": None}}
    job["spec"]["pytorchReplicaSpecs"]["Master"] = None
    job["metadata"] |= {"labels": {"a": None}, "annotations": None}
    stored = a_pod(nodeSelector={"b": "c"})
    stored["spec"]["runPolicy"] = {"suspend": False}
    stored["metadata"]["labels"] = {"a": ""}
    assert admit_job(job) == stored
    assert reject(admit_job, {**job, "spec": None}) == (403, f"{ROLES}: Required value")


def limited(amount: Any) -> dict[str, Any]:
    return a_container(resources={"limits": {"cpu": amount}})


@pytest.mark.parametrize("amount", [2, "500m", "1e3", ".5", "-1"])
def test_integer_or_valid_text_is_accepted_as_a_quantity(amount: Any) -> None:
    assert admit_job(limited(amount)) == limited(amount)


def a_role(**fields: Any) -> dict[str, Any]:
    return {**a_spec()["pytorchReplicaSpecs"]["Worker"], **fields}


POD = "spec.pytorchReplicaSpecs.Worker.template.spec"
CPU = f"{POD}.containers[0].resources.limits.cpu"
PAIR = "spec.pytorchReplicaSpecs[Worker].template.spec"
ROLES = "spec.pytorchReplicaSpecs"
WRONG_TYPES: list[tuple[Any, str]] = [
    ({**a_spec(), "nprocPerNode": 2}, "spec.nprocPerNode"),
    ({**a_spec(), "runPolicy": {"backoffLimit": "3"}}, "spec.runPolicy.backoffLimit"),
    ({**a_spec(), "runPolicy": {"backoffLimit": 0.5}}, "spec.runPolicy.backoffLimit"),
    ({**a_spec(), "runPolicy": {"backoffLimit": 2**64}}, "spec.runPolicy.backoffLimit"),
    ({**a_spec(), "runPolicy": {"backoffLimit": True}}, "spec.runPolicy.backoffLimit"),
    ({**a_spec(), "runPolicy": {"suspend": "no"}}, "spec.runPolicy.suspend"),
    ({**a_spec(), "runPolicy": []}, "spec.runPolicy"),
    (a_container(args=[None])["spec"], f"{POD}.containers[0].args[0]"),
    (a_container(args=[1])["spec"], f"{POD}.containers[0].args[0]"),
    (a_container(env=[{"name": "A", "value": 1}])["spec"], f"{POD}.containers[0].env[0].value"),
    (a_pod(volumes={})["spec"], f"{POD}.volumes"),
    ([], "spec"),
]
MISSING: list[tuple[Any, str]] = [
    (a_job({"nprocPerNode": "1"}), "spec.pytorchReplicaSpecs"),
    (a_job(a_spec(template={"spec": {}})), f"{POD}.containers"),
    (a_pod(containers=[{"image": "a"}]), f"{POD}.containers[0].name"),
    (a_container(ports=[{"name": "p"}]), f"{POD}.containers[0].ports[0].containerPort"),
    (a_pod(volumes=[{"name": "v", "hostPath": {}}]), f"{POD}.volumes[0].hostPath.path"),
    (a_job({**a_spec(), "elasticPolicy": {"metrics": [{}]}}), "spec.elasticPolicy.metrics[0].type"),
]
PORTS = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}]
MOUNTS = [{"name": "a", "mountPath": "/x"}, {"name": "b", "mountPath": "/x"}]
# Tolerations have no key.
TWICE = {"tolerations": [{}, {}], "imagePullSecrets": [{"name": "a"}] * 2}
UNCOUNTED = {"template": a_role()["template"]}
ELASTIC_MASTER = {"elasticPolicy": {}, "pytorchReplicaSpecs": {"Master": a_role()}}
TWO_PROCESS_COUNTS = {**a_spec(), "nprocPerNode": "1", "elasticPolicy": {"nProcPerNode": 2}}
INVALID: list[tuple[Any, str]] = [
    *((a_job(spec), f"{path}: Invalid value") for spec, path in WRONG_TYPES),
    *((manifest, f"{path}: Required value") for manifest, path in MISSING),
    (a_pod(containers=[{"name": "pytorch", "image": "a"}] * 2), f"{PAIR}.containers[1]: Duplicate value"),
    (a_container(env=[{"name": "A"}] * 2), f"{PAIR}.containers[0].env[1]: Duplicate value"),
    (a_container(ports=PORTS), f"{PAIR}.containers[0].ports[2]: Duplicate value"),
    (a_container(volumeMounts=MOUNTS), f"{PAIR}.containers[0].volumeMounts[1]: Duplicate value"),
    (a_pod(**TWICE), f"{PAIR}.imagePullSecrets[1]: Duplicate value"),
    (limited("lots"), f"{CPU}: Invalid value"),
    (limited(0.5), f"{CPU}: Invalid value"),
    (a_job(name=""), "metadata.name: Required value"),
    (a_pod(containers=["a"]), f"{POD}.containers[0]: Invalid value, {PAIR}.containers[0]: Invalid value"),
    (a_job(a_spec(replicas=-1)), f".{ROLES}.Worker.replicas: Invalid value"),
    (a_job(a_spec(replicas=2**31)), f".{ROLES}.Worker.replicas: Invalid value"),
]
# Refused by the operator's webhook.
FORBIDDEN: list[tuple[Any, str]] = [
    (a_job(name="1job"), "metadata.name: Invalid value"),
    (a_job(name="j" * 64), "metadata.name: Invalid value"),
    (a_job({**a_spec(), "runPolicy": {"managedBy": ""}}), "spec.runPolicy.managedBy: Unsupported value"),
    (a_job(ELASTIC_MASTER), f"{ROLES}[Worker]: Required value"),
    (a_job(TWO_PROCESS_COUNTS), "spec.elasticPolicy.nProcPerNode: Forbidden"),
    (a_job({"pytorchReplicaSpecs": {"worker": a_role()}}), f"{ROLES}[worker]: Unsupported value"),
    (a_pod(containers=[]), f"{PAIR}.containers: Required value, {PAIR}.containers: Required value"),
    (a_container(image=""), f"{PAIR}.containers[0].image: Required value"),
    (a_container(name="main"), f"{PAIR}.containers: Required value"),
    (a_job({"pytorchReplicaSpecs": {"Master": a_role(replicas=2)}}), f"{ROLES}[Master].replicas: Forbidden"),
    (a_job({"pytorchReplicaSpecs": {"Master": UNCOUNTED}}), f"{ROLES}[Master].replicas: Forbidden"),
    (a_job(a_spec(replicas=0)), f"{ROLES}[Worker].replicas: Forbidden"),
    ({key: value for key, value in a_job().items() if key != "spec"}, f"{ROLES}: Required value"),
]
REFUSED: list[tuple[Any, int, str]] = [
    *((manifest, 422, causes) for manifest, causes in INVALID),
    *((manifest, 403, causes) for manifest, causes in FORBIDDEN),
    # What the webhook cannot decode.
    (a_job({**a_spec(), "runPolicy": {"backoffLimit": 3_000_000_000}}), 400, ""),
    (limited("1e1.5"), 400, ""),
    (a_container(args=["x" * 2_000_000]), 413, ""),
    ({**a_job(), "kind": "TFJob"}, 400, ""),
    ({**a_job(), "apiVersion": "v1"}, 400, ""),
]


@pytest.mark.parametrize(("manifest", "code", "causes"), REFUSED)
def test_invalid_job_is_rejected(manifest: Any, code: int, causes: str) -> None:
    assert reject(admit_job, manifest) == (code, causes)


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"pytorchReplicaSpecs": {}}, f"{ROLES}: Required value"),
        (a_spec(replicas=1_001), f"{ROLES}: Forbidden"),
    ],
)
def test_invalid_job_that_the_upstream_webhook_accepts_is_denied(spec: Any, cause: str) -> None:
    assert reject(admit_job, a_job(spec)) == (403, cause)
    assert admit_job(a_job(spec), upstream=True) == a_job(spec)


# ---- updates


def stored(job: dict[str, Any]) -> dict[str, Any]:
    metadata = {**job["metadata"], "uid": "u", "resourceVersion": "1", "creationTimestamp": AT_ONCE}
    return {**job, "metadata": metadata, "status": {"startTime": AT_ONCE}}


def test_update_keeps_identity_and_status() -> None:
    old = stored(a_job())
    patch = {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}, "status": {"startTime": None}, "kinds": 1}
    expected = {**old, "spec": {**old["spec"], "runPolicy": {"cleanPodPolicy": "All", "suspend": False}}}
    assert admit_job_update(old, merge_patch(old, patch)) == expected


@pytest.mark.parametrize(
    ("patch", "code", "cause"),
    [
        ({"metadata": {"name": "other"}}, 422, "metadata.name: Invalid value"),
        ({"metadata": {"uid": None}}, 422, "metadata.uid: Invalid value"),
        (OF_NO_WORKER, 403, f"{ROLES}[Worker].replicas: Forbidden"),
        (OF_QUEUE_B, 422, "spec.runPolicy.schedulingPolicy.queue: Invalid value"),
    ],
)
def test_immutable_field_change_is_rejected(patch: Any, code: int, cause: str) -> None:
    old = stored(a_job({**a_spec(), "runPolicy": {"schedulingPolicy": {"queue": "a"}}}))
    assert reject(admit_job_update, old, merge_patch(old, patch)) == (code, cause)


@pytest.mark.parametrize("queue", [None, "a"])
def test_queue_may_be_kept_or_removed(queue: Any) -> None:
    old = stored(a_job({**a_spec(), "runPolicy": {"suspend": False, "schedulingPolicy": {"queue": "a"}}}))
    new = merge_patch(old, {"spec": {"runPolicy": {"schedulingPolicy": {"queue": queue}}}})
    assert admit_job_update(old, new) == new


# The examples from RFC 7386, appendix A, that have an object as target.
@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_rfc(old: Any, patch: Any, new: Any) -> None:
    assert merge_patch(old, patch) == new


# ---- metadata, whose errors the API server reports before all others

OWNER = {"apiVersion": "v1", "kind": "Kind", "name": "name", "uid": "uid"}


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

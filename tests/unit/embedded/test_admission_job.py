"""API admission of PyTorchJobs: errors of the API server and the operator's webhook, and defaults."""

from typing import Any

import pytest

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import merge_patch
from backend_plugin.embedded.operators.pytorchjob import admit_job, admit_job_update

DENIED = 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the request: '
INVALID = 'PyTorchJob.kubeflow.org "job" is invalid: '
POD = "spec.pytorchReplicaSpecs.Worker.template.spec"


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


def refusal(manifest: Any, **mode: Any) -> tuple[int, str, str]:
    with pytest.raises(RequestRejected) as refused:
        admit_job(manifest, **mode)
    assert str(refused.value) == refused.value.message
    return refused.value.code, refused.value.reason, refused.value.message


def test_a_good_job_is_stored_as_it_was_sent() -> None:
    job = a_job(labels={"a": "b"}, annotations={"c": "d"}, finalizers=["example.com/x"])
    assert admit_job(job) == job


def test_nulls_say_nothing() -> None:
    job = a_pod(nodeSelector={"a": None, "b": "c"}, hostname=None)
    job["spec"] |= {"nprocPerNode": None, "runPolicy": {"suspend": None, "managedBy": None}}
    job["spec"]["pytorchReplicaSpecs"]["Master"] = None
    job["metadata"] |= {"labels": {"a": None}, "annotations": None}
    stored = a_pod(nodeSelector={"b": "c"})
    stored["spec"]["runPolicy"] = {"suspend": False}
    stored["metadata"]["labels"] = {"a": ""}
    assert admit_job(job) == stored
    assert refusal({**job, "spec": None})[0] == 403


def test_unknown_fields_and_what_only_the_server_says_are_dropped() -> None:
    job = a_pod(resources={"limits": {"cpu": 1}}, hostnameOverride="x")
    job["metadata"] |= {"uid": "mine", "creationTimestamp": None, "labels": {}, "selfLink": "x"}
    job["status"] = {"conditions": []}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {
        "creationTimestamp": None,
        "labels": {"a": "b"},
    }
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["minReplicas"] = 3
    job["spec"]["ttlSecondsAfterFinished"] = 3
    expected = a_pod()
    expected["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": {"a": "b"}}
    assert admit_job(job) == expected


def test_defaults_are_filled_into_what_is_there() -> None:
    job = a_pod(
        containers=[
            {
                "name": "pytorch",
                "image": "a",
                "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": None}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}],
            }
        ],
        volumes=[{"name": "v", "iscsi": {"iqn": "i", "lun": 1, "targetPortal": "t"}}],
    )
    job["spec"]["runPolicy"] = {"suspend": None}
    job["spec"]["nprocPerNode"] = "1"
    stored = admit_job(job)
    pod = stored["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]  # type: ignore[index,call-overload]
    assert stored["spec"]["runPolicy"] == {"suspend": False}  # type: ignore[index,call-overload]
    assert pod["containers"][0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 81, "protocol": "TCP"},
    ]
    assert pod["containers"][0]["env"][0]["valueFrom"] == {"secretKeyRef": {"key": "k", "name": ""}}
    assert pod["volumes"][0]["iscsi"]["iscsiInterface"] == "default"


def test_what_is_sent_is_not_changed() -> None:
    job = a_job({**a_spec(), "runPolicy": {}})
    admit_job(job)
    assert job == a_job({**a_spec(), "runPolicy": {}})


MALFORMED = {
    "a number for a text": ({**a_spec(), "nprocPerNode": 2}, "spec.nprocPerNode", "string", "integer"),
    "a text for a number": (
        {**a_spec(), "runPolicy": {"backoffLimit": "3"}},
        "spec.runPolicy.backoffLimit",
        "integer",
        "string",
    ),
    "a fraction for a number": (
        {**a_spec(), "runPolicy": {"backoffLimit": 0.5}},
        "spec.runPolicy.backoffLimit",
        "integer",
        "number",
    ),
    "a text for a boolean": (
        {**a_spec(), "runPolicy": {"suspend": "no"}},
        "spec.runPolicy.suspend",
        "boolean",
        "string",
    ),
    "a number of more than 64 bits": (
        {**a_spec(), "runPolicy": {"backoffLimit": 2**64}},
        "spec.runPolicy.backoffLimit",
        "integer",
        "number",
    ),
    "nothing in a list of texts": (
        a_container(args=[None])["spec"],
        f"{POD}.containers[0].args[0]",
        "string",
        "null",
    ),
    "a boolean for a number": (
        {**a_spec(), "runPolicy": {"backoffLimit": True}},
        "spec.runPolicy.backoffLimit",
        "integer",
        "boolean",
    ),
    "an object for a list": (a_pod(volumes={})["spec"], f"{POD}.volumes", "array", "object"),
    "a list for an object": ({**a_spec(), "runPolicy": []}, "spec.runPolicy", "object", "array"),
    "a number in a list of texts": (
        a_container(args=[1])["spec"],
        f"{POD}.containers[0].args[0]",
        "string",
        "integer",
    ),
    "a number for a variable": (
        a_container(env=[{"name": "A", "value": 1}])["spec"],
        f"{POD}.containers[0].env[0].value",
        "string",
        "integer",
    ),
    "no object at all": ([], "spec", "object", "array"),
}


@pytest.mark.parametrize(("spec", "path", "wanted", "found"), MALFORMED.values(), ids=MALFORMED)
def test_a_value_of_another_type_is_refused(spec: Any, path: str, wanted: str, found: str) -> None:
    message = f'{INVALID}{path}: Invalid value: "{found}": must be of type {wanted}'
    assert refusal(a_job(spec)) == (422, "Invalid", message)


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (a_job({"nprocPerNode": "1"}), "spec.pytorchReplicaSpecs"),
        (a_job(a_spec(template={"spec": {}})), f"{POD}.containers"),
        (a_pod(containers=[{"image": "a"}]), f"{POD}.containers[0].name"),
        (a_container(ports=[{"name": "p"}]), f"{POD}.containers[0].ports[0].containerPort"),
        (a_pod(volumes=[{"name": "v", "hostPath": {}}]), f"{POD}.volumes[0].hostPath.path"),
        (a_job({**a_spec(), "elasticPolicy": {"metrics": [{}]}}), "spec.elasticPolicy.metrics[0].type"),
    ],
)
def test_what_must_be_there_and_is_not_is_named(manifest: Any, path: str) -> None:
    assert refusal(manifest) == (422, "Invalid", f"{INVALID}{path}: Required value")


PAIR = "spec.pytorchReplicaSpecs[Worker].template.spec"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            a_pod(containers=[{"name": "pytorch", "image": "a"}, {"name": "pytorch", "image": "b"}]),
            f'{PAIR}.containers[1]: Duplicate value: {{"name":"pytorch"}}',
        ),
        (
            a_container(env=[{"name": "A"}, {"name": "B"}, {"name": "A"}, {"name": "A"}]),
            f'{PAIR}.containers[0].env[2]: Duplicate value: {{"name":"A"}}',
        ),
        (
            a_container(
                ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}]
            ),
            f'{PAIR}.containers[0].ports[2]: Duplicate value: {{"containerPort":80,"protocol":"TCP"}}',
        ),
        (
            a_container(volumeMounts=[{"name": "a", "mountPath": "/x"}, {"name": "b", "mountPath": "/x"}]),
            f'{PAIR}.containers[0].volumeMounts[1]: Duplicate value: {{"mountPath":"/x"}}',
        ),
        (
            a_pod(tolerations=[{}, {}], imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
            f'{PAIR}.imagePullSecrets[1]: Duplicate value: {{"name":"a"}}',
        ),
    ],
)
def test_entries_of_a_list_must_be_told_apart(manifest: Any, said: str) -> None:
    assert refusal(manifest) == (422, "Invalid", INVALID + said)


CPU = f"{POD}.containers[0].resources.limits.cpu"


def test_a_quantity_is_a_whole_number_or_a_text_of_its_form() -> None:
    def limited(amount: Any) -> dict[str, Any]:
        return a_container(resources={"limits": {"cpu": amount}})

    assert [admit_job(limited(amount)) == limited(amount) for amount in (2, "500m", "1e3", ".5", "-1")] == [
        True
    ] * 5
    for amount, shown in (("lots", '"lots"'), (0.5, '"number"')):
        code, reason, message = refusal(limited(amount))
        assert (code, reason) == (422, "Invalid")
        assert message.startswith(f"{INVALID}{CPU}: Invalid value: {shown}: ")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            a_job({**a_spec(), "runPolicy": {"backoffLimit": 3_000_000_000}}),
            "json: cannot unmarshal number 3000000000 into Go struct field"
            " PyTorchJob.spec.runPolicy.backoffLimit of type int32",
        ),
        (
            a_container(resources={"limits": {"cpu": "1e1.5"}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_what_the_operator_could_not_read_is_refused_by_its_webhook(manifest: Any, said: str) -> None:
    assert refusal(manifest) == (400, "", DENIED + said)


ROLES = "spec.pytorchReplicaSpecs"
SUPPORTED = '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'


def a_role(**fields: Any) -> dict[str, Any]:
    return {**a_spec()["pytorchReplicaSpecs"]["Worker"], **fields}


DENIALS = {
    "a name that begins with a digit": (
        a_job(name="1job"),
        'metadata.name: Invalid value: "1job": should match: must match the regular expression'
        " '[a-z]([-a-z0-9]*[a-z0-9])?'",
    ),
    "a long name": (
        a_job(name="j" * 64),
        f'metadata.name: Invalid value: "{"j" * 64}": should match: must be no more than 63 characters',
    ),
    "somebody else's": (
        a_job({**a_spec(), "runPolicy": {"managedBy": ""}}),
        f'spec.runPolicy.managedBy: Unsupported value: "": supported values: {SUPPORTED}',
    ),
    "elastic without workers": (
        a_job({"elasticPolicy": {}, "pytorchReplicaSpecs": {"Master": a_role()}}),
        f"{ROLES}[Worker]: Required value: must be configured if elastic policy is used",
    ),
    "processes twice": (
        a_job({**a_spec(), "nprocPerNode": "1", "elasticPolicy": {"nProcPerNode": 2}}),
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
    ),
    "a role in lower case": (
        a_job({"pytorchReplicaSpecs": {"worker": a_role()}}),
        f'{ROLES}[worker]: Unsupported value: "worker": supported values: "Master", "Worker"',
    ),
    "no containers": (
        a_pod(containers=[]),
        f"[{PAIR}.containers: Required value: must be specified, "
        f"{PAIR}.containers: Required value: must have at least one container with name pytorch]",
    ),
    "no image": (a_container(image=""), f"{PAIR}.containers[0].image: Required value: must be required"),
    "another container": (
        a_container(name="main"),
        f"{PAIR}.containers: Required value: must have at least one container with name pytorch",
    ),
    "two masters": (
        a_job({"pytorchReplicaSpecs": {"Master": a_role(replicas=2)}}),
        f"{ROLES}[Master].replicas: Forbidden: must be 1",
    ),
    "a master without a number": (
        a_job({"pytorchReplicaSpecs": {"Master": {"template": a_role()["template"]}}}),
        f"{ROLES}[Master].replicas: Forbidden: must be 1",
    ),
    "no worker": (a_job(a_spec(replicas=0)), f"{ROLES}[Worker].replicas: Forbidden: must be at least 1"),
}


@pytest.mark.parametrize(("manifest", "said"), DENIALS.values(), ids=DENIALS)
def test_the_webhook_denies_in_its_own_words(manifest: Any, said: str) -> None:
    assert refusal(manifest) == (403, "Forbidden", DENIED + said)


def test_a_job_must_have_a_name() -> None:
    assert refusal(a_job(name="")) == (
        422,
        "Invalid",
        'PyTorchJob.kubeflow.org "" is invalid: '
        "metadata.name: Required value: name or generateName is required",
    )


def test_an_entry_without_fields_is_refused_by_type_and_by_key() -> None:
    of_type = f'{POD}.containers[0]: Invalid value: "string": must be of type object'
    key = f'{PAIR}.containers[0]: Invalid value: "a": must be an object for an array of list-type map'
    assert refusal(a_pod(containers=["a"]))[2] == f"{INVALID}[{of_type}, {key}]"


def test_a_job_without_a_spec_is_the_webhooks_matter() -> None:
    job = {key: value for key, value in a_job().items() if key != "spec"}
    assert refusal(job) == (403, "Forbidden", f"{DENIED}{ROLES}: Required value: must be required")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"pytorchReplicaSpecs": {}}, f"{ROLES}: Required value: must be required"),
        (
            a_spec(replicas=1_001),
            f"{ROLES}: Forbidden: must have at most 1000 replicas in total, has 1001",
        ),
    ],
)
def test_what_the_webhook_lets_in_by_mistake_is_denied_too(spec: Any, said: str) -> None:
    assert refusal(a_job(spec)) == (403, "Forbidden", DENIED + said)
    assert admit_job(a_job(spec), upstream=True) == a_job(spec)


@pytest.mark.parametrize(
    ("replicas", "said"),
    [(-1, "should be a non-negative integer"), (2**31, "should be less than or equal to 2147483647")],
)
def test_the_scale_subresource_wants_a_number_that_it_can_read(replicas: int, said: str) -> None:
    path = ".spec.pytorchReplicaSpecs.Worker.replicas"
    assert refusal(a_job(a_spec(replicas=replicas))) == (
        422,
        "Invalid",
        f"{INVALID}{path}: Invalid value: {replicas}: {said}",
    )


def test_what_is_larger_than_the_store_takes_is_refused() -> None:
    job = a_container(args=["x" * 2_000_000])
    assert refusal(job) == (413, "RequestEntityTooLarge", "etcdserver: request is too large")


@pytest.mark.parametrize("changed", [{"kind": "TFJob"}, {"apiVersion": "v1"}])
def test_another_kind_is_a_bad_request(changed: Any) -> None:
    assert refusal({**a_job(), **changed})[:2] == (400, "BadRequest")


# ---- updates


def stored(job: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        **job["metadata"],
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {**job, "metadata": metadata, "status": {"startTime": "2026-01-01T00:00:00Z"}}


def test_a_change_keeps_identity_and_status() -> None:
    old = stored(a_job())
    patch = {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}, "status": {"startTime": None}, "kinds": 1}
    expected = {**old, "spec": {**old["spec"], "runPolicy": {"cleanPodPolicy": "All", "suspend": False}}}
    assert admit_job_update(old, merge_patch(old, patch)) == expected


@pytest.mark.parametrize(
    ("patch", "code", "said"),
    [
        (
            {"metadata": {"name": "other"}},
            422,
            f'{INVALID}metadata.name: Invalid value: "other": field is immutable',
        ),
        ({"metadata": {"uid": None}}, 422, f"{INVALID}metadata.uid: Invalid value: null: field is immutable"),
        (
            {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}},
            403,
            f"{DENIED}{ROLES}[Worker].replicas: Forbidden: must be at least 1",
        ),
        (
            {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}},
            422,
            f'{INVALID}spec.runPolicy.schedulingPolicy.queue: Invalid value: "string":'
            " spec.runPolicy.schedulingPolicy.queue is immutable",
        ),
    ],
)
def test_some_changes_are_refused(patch: Any, code: int, said: str) -> None:
    old = stored(a_job({**a_spec(), "runPolicy": {"schedulingPolicy": {"queue": "a"}}}))
    with pytest.raises(RequestRejected) as refused:
        admit_job_update(old, merge_patch(old, patch))
    assert (refused.value.code, refused.value.message) == (code, said)


@pytest.mark.parametrize("queue", [None, "a"])
def test_a_queue_may_be_kept_or_left(queue: Any) -> None:
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
def test_a_merge_patch_is_that_of_the_rfc(old: Any, patch: Any, new: Any) -> None:
    assert merge_patch(old, patch) == new

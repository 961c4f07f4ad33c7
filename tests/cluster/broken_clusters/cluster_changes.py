"""Context managers that break a cluster and repair it again, for changes other than additional objects."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rig import fake_nodes, operator
from rig.api import Manifest, path_of
from rig.control_plane import ControlPlane
from rig.process import wait_until
from rig.proxy import Proxy

from broken_clusters.manifests import build_manifest

if TYPE_CHECKING:
    from broken_clusters.break_case import BreakCase

_ADMISSION = "admissionregistration.k8s.io/v1"
_HOOK = "validatingwebhookconfigurations/validator.training-operator.kubeflow.org"
_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org"
_OURS = "has(object.metadata.labels) && 'kfpytorch.flyte.org/job' in object.metadata.labels"
_OWN = ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation")


@contextlib.contextmanager
def with_object(plane: ControlPlane, manifest: Manifest) -> Iterator[None]:
    """Create or replace an object. On exit, delete it or restore the object that it replaced."""
    path = f"{path_of(manifest)}/{manifest['metadata']['name']}"
    status = manifest.get("status")
    before = plane.admin.get(path)
    if manifest["kind"] == "CustomResourceDefinition":
        _with_kind(plane, manifest)
    else:
        plane.admin.apply({key: value for key, value in manifest.items() if key != "status"})
    if status is not None:
        plane.admin.patch(f"{path}/status", {"status": status})
    try:
        yield
    finally:
        if before is None:
            # The protection controller does not run in this cluster, so remove its finalizer from the claim.
            plane.admin.patch(path, {"metadata": {"finalizers": None}})
            plane.admin.delete(path)
            wait_until(lambda: plane.admin.get(path) is None, 60, lambda: f"{path} is left")
        else:
            _put_back(plane, path, before)


def _with_kind(plane: ControlPlane, manifest: Manifest) -> None:
    path = f"/apis/{manifest['spec']['group']}/{manifest['spec']['versions'][0]['name']}"
    plane.admin.apply(manifest)
    plural = manifest["spec"]["names"]["plural"]
    wait_until(
        lambda: plane.admin.request("GET", f"{path}/{plural}").is_success,
        60,
        lambda: f"{plural} are not served",
    )


def _put_back(plane: ControlPlane, path: str, before: Manifest) -> None:
    now = plane.admin.get(path) or before
    metadata = {key: value for key, value in before["metadata"].items() if key not in _OWN}
    metadata["resourceVersion"] = now["metadata"]["resourceVersion"]
    answer = plane.admin.request("PUT", path, {**before, "metadata": metadata})
    assert answer.is_success, answer.text
    if "status" in before:
        plane.admin.patch(f"{path}/status", {"status": before["status"]})


# ---- the API server


def nobody(on: "BreakCase") -> contextlib.AbstractContextManager[Mapping[str, Any]]:
    return contextlib.nullcontext({"kubeconfig": on.plane.kubeconfig(server="https://127.0.0.1:9")})


@contextlib.contextmanager
def ahead(on: "BreakCase") -> Iterator[Mapping[str, Any]]:
    with Proxy(on.plane) as proxy:
        proxy.skew = timedelta(minutes=3)
        yield {"kubeconfig": on.plane.kubeconfig(server=proxy.url)}


# ---- the operator


@contextlib.contextmanager
def _without_object(plane: ControlPlane, path: str) -> Iterator[None]:
    before = plane.admin.get(path)
    assert before is not None
    plane.admin.delete(path)
    try:
        yield
    finally:
        metadata = {key: value for key, value in before["metadata"].items() if key not in _OWN}
        plane.admin.apply({**before, "metadata": metadata})
        if "status" in before:
            plane.admin.patch(f"{path}/status", {"status": before["status"]})


def without_hook(on: "BreakCase") -> contextlib.AbstractContextManager[None]:
    return _without_object(on.plane, f"/apis/{_ADMISSION}/{_HOOK}")


def without_account(on: "BreakCase") -> contextlib.AbstractContextManager[None]:
    return _without_object(on.plane, f"/api/v1/namespaces/{on.namespace}/serviceaccounts/default")


@contextlib.contextmanager
def without_kind(on: "BreakCase") -> Iterator[None]:
    on.plane.admin.delete(_CRD)
    wait_until(lambda: on.plane.admin.get(_CRD) is None, 60, lambda: "the kind is left")
    try:
        yield
    finally:
        on.plane.crds(operator.crds())


# ---- admission


def _rule(group: str, plural: str) -> Mapping[str, Any]:
    versions = {"apiGroups": [group], "apiVersions": ["v1"]}
    return {**versions, "operations": ["CREATE"], "resources": [plural]}


def away(namespace: str) -> Manifest:
    """Return a webhook configuration with an endpoint that refuses connections."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    hook = {
        "name": "away.example.org",
        "rules": [_rule("kubeflow.org", "pytorchjobs")],
        "namespaceSelector": here,
        "clientConfig": {"url": "https://127.0.0.1:9/validate"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    return build_manifest(_ADMISSION, "ValidatingWebhookConfiguration", f"away-{namespace}", webhooks=[hook])


def refusing(namespace: str, group: str, plural: str) -> Sequence[Manifest]:
    """Return an admission policy that rejects all objects with the label of our jobs."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    name = f"refuse-{namespace}-{plural}"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule(group, plural)], "namespaceSelector": here},
        "validations": [{"expression": f"!({_OURS})", "message": "not here"}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        build_manifest(_ADMISSION, "ValidatingAdmissionPolicy", name, spec=spec),
        build_manifest(_ADMISSION, "ValidatingAdmissionPolicyBinding", name, spec=bound),
    ]


def altering(namespace: str, group: str, plural: str, path: str, value: str) -> Sequence[Manifest]:
    """Return an admission policy that adds `value` at `path` to all objects with the label of our jobs."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    name, version = f"alter-{namespace}-{plural}", "admissionregistration.k8s.io/v1beta1"
    patch = f'[JSONPatch{{op: "add", path: "{path}", value: {value}}}]'
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [_rule(group, plural)], "namespaceSelector": here},
        "matchConditions": [{"name": "ours", "expression": _OURS}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    return [
        build_manifest(version, "MutatingAdmissionPolicy", name, spec=spec),
        build_manifest(version, "MutatingAdmissionPolicyBinding", name, spec={"policyName": name}),
    ]


def kueues_webhook(namespace: str) -> Sequence[Manifest]:
    """Return a policy that suspends jobs with a queue name, as Kueue's PyTorchJob integration does."""
    alter, bind = altering(namespace, "kubeflow.org", "pytorchjobs", "/spec/runPolicy", '{"suspend": true}')
    queued = "has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels"
    only = {"name": "queued", "expression": f"{queued} && !has(object.spec.runPolicy)"}
    return [{**alter, "spec": {**alter["spec"], "matchConditions": [only]}}, bind]


@contextlib.contextmanager
def secured(on: "BreakCase") -> Iterator[None]:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    on.plane.admin.patch(f"/api/v1/namespaces/{on.namespace}", {"metadata": {"labels": label}})
    yield


@contextlib.contextmanager
def cordoned(on: "BreakCase") -> Iterator[None]:
    with fake_nodes.cordoned(on.plane):
        yield

"""Context managers that break a cluster and repair it again, for changes other than additional objects."""

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from rig import operator, policies
from rig.api import build_manifest, path_of
from rig.control_plane import ControlPlane
from rig.proxy import Proxy
from rig.stores import S3

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org"
_OURS = "has(object.metadata.labels) && 'kfpytorch.flyte.org/job' in object.metadata.labels"
_OWN = ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation")


@dataclass(frozen=True, kw_only=True)
class BreakCase:
    """The place to break: a cluster, a namespace in it and a scratch folder."""

    plane: ControlPlane
    namespace: str
    folder: Path


@contextlib.contextmanager
def with_object(plane, manifest):
    """Create or replace an object. On exit, delete it or restore the object that it replaced."""
    path = f"{path_of(manifest)}/{manifest['metadata']['name']}"
    before = plane.admin.get(path)
    if manifest["kind"] == "CustomResourceDefinition":
        plane.add_kind(manifest)
    else:
        plane.admin.apply_with_status(manifest)
    try:
        yield
    finally:
        if before is None:
            # The protection controller does not run in this cluster, so remove its finalizer from the claim.
            plane.admin.patch(path, {"metadata": {"finalizers": None}})
            plane.admin.delete(path)
            plane.admin.wait_until_gone(path)
        else:
            _put_back(plane, path, before)


def _put_back(plane, path, before):
    metadata = {key: value for key, value in before["metadata"].items() if key not in _OWN}
    if now := plane.admin.get(path):
        metadata["resourceVersion"] = now["metadata"]["resourceVersion"]
        answer = plane.admin.request("PUT", path, {**before, "metadata": metadata})
        assert answer.is_success, answer.text
    else:
        plane.admin.create({**before, "metadata": metadata})
    if "status" in before:
        plane.admin.patch(f"{path}/status", {"status": before["status"]})


@contextlib.contextmanager
def ahead(on):
    with Proxy(on.plane) as proxy:
        proxy.skew = timedelta(minutes=3)
        yield {"kubeconfig": on.plane.kubeconfig(server=proxy.url)}


@contextlib.contextmanager
def without_object(plane, path):
    before = plane.admin.get_existing(path)
    plane.admin.delete(path)
    try:
        yield
    finally:
        _put_back(plane, path, before)


@contextlib.contextmanager
def without_kind(on):
    on.plane.admin.delete(_CRD)
    on.plane.admin.wait_until_gone(_CRD)
    try:
        yield
    finally:
        on.plane.crds(operator.crds())


def away(namespace):
    """Return a webhook configuration with an endpoint that refuses connections."""
    hook = {
        "name": "away.example.org",
        "rules": [policies.build_rule("kubeflow.org", "pytorchjobs")],
        "namespaceSelector": policies.select_namespace(namespace),
        "clientConfig": {"url": "https://127.0.0.1:9/validate"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    name = f"away-{namespace}"
    return build_manifest(policies.VERSION, "ValidatingWebhookConfiguration", name, webhooks=[hook])


def refusing(namespace, kind):
    """Return an admission policy that rejects all objects with the label of our jobs."""
    return policies.refuse(f"refuse-{namespace}-{kind[1]}", namespace, kind, f"!({_OURS})", "not here")


def altering(namespace, kind, path, value):
    """Return an admission policy that adds `value` at `path` to all objects with the label of our jobs."""
    patch = f'op: "add", path: "{path}", value: {value}'
    return policies.alter(f"alter-{namespace}-{kind[1]}", namespace, kind, patch, _OURS)


def kueues_webhook(namespace):
    """Return a policy that suspends jobs with a queue name, as Kueue's PyTorchJob integration does."""
    patch = 'op: "add", path: "/spec/runPolicy", value: {"suspend": true}'
    queued = "has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels"
    condition = f"{queued} && !has(object.spec.runPolicy)"
    return policies.alter(f"queue-{namespace}", namespace, ("kubeflow.org", "pytorchjobs"), patch, condition)


def s3(**environment):
    """Start an S3 server for the outputs. `environment` overrides the client settings."""

    @contextlib.contextmanager
    def around(on):
        folder = on.folder / "s3"
        folder.mkdir()
        with S3(folder) as store, pytest.MonkeyPatch.context() as patch:
            for name, value in {**store.environment, **environment}.items():
                patch.setenv(name, value)
            yield {"output_prefixes": [f"{store.uri}/metadata"]}

    return around

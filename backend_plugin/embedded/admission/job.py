"""Validates and completes PyTorchJobs in the order of the API server and the operator's webhook."""

import json
from typing import Any, Final

from backend_plugin.core.errors import Refused
from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import metadata, names, schema, webhook
from backend_plugin.embedded.admission.job_types import JOB
from backend_plugin.embedded.admission.refusal import (
    WEBHOOK,
    Cause,
    denied,
    invalid,
    not_understood,
    unprocessable_resource,
)

API_VERSION: Final = "kubeflow.org/v1"
_KIND: Final = "PyTorchJob.kubeflow.org"
# The limit of etcd for one object.
_MOST_BYTES: Final = 1536 * 1024


def admit(manifest: Manifest, *, upstream: bool = False) -> Manifest:
    """Return a new PyTorchJob as it is stored, without the metadata that the store adds.

    Args:
        manifest: The object that the client sent.
        upstream: Accept the invalid jobs that the operator's webhook accepts by mistake.

    Raises:
        Refused: If the API server or the webhook would reject the job.
    """
    _check_kind(manifest)
    job = _pruned(manifest, metadata.sent(manifest))
    wrong = [*metadata.causes(section(job, "metadata"), names.subdomain), *_of_spec(job)]
    if wrong:
        raise unprocessable_resource(_KIND, text(section(job, "metadata"), "name"), wrong)
    _check_webhook(job, [] if upstream else list(webhook.beyond(job)))
    return job


def admit_update(old: Manifest, new: Manifest, *, upstream: bool = False) -> Manifest:
    """Return a changed PyTorchJob as it is stored. Its status stays that of `old`.

    Args:
        old: The stored object.
        new: The changed object.
        upstream: As for `admit`.

    Raises:
        Refused: If the API server or the webhook would reject the change.
    """
    _check_kind(new)
    job = _pruned(new, metadata.kept(new))
    if "status" in old:
        job["status"] = old["status"]
    found = section(job, "metadata")
    wrong = [*metadata.changes(old, found), *metadata.causes(found, names.subdomain), *_of_spec(job)]
    wrong = wrong or _of_transition(old, job)
    if wrong:
        raise unprocessable_resource(_KIND, text(section(old, "metadata"), "name"), wrong)
    _check_webhook(job, [] if upstream else list(webhook.beyond(job)))
    return job


def _check_kind(manifest: Manifest) -> None:
    if manifest.get("kind") != JOB or manifest.get("apiVersion") != API_VERSION:
        found = f"{manifest.get('apiVersion')}, Kind={manifest.get('kind')}"
        raise not_understood(f"the object's type ({found}) is not {API_VERSION}, Kind={JOB}")


def _pruned(manifest: Manifest, found: Any) -> dict[str, Any]:
    job = {"apiVersion": API_VERSION, "kind": JOB, "metadata": found}
    if manifest.get("spec") is not None:
        job["spec"] = schema.pruned(manifest["spec"], "PyTorchJobSpec")
    if len(json.dumps(job)) > _MOST_BYTES:
        raise Refused(413, "RequestEntityTooLarge", "etcdserver: request is too large")
    return job


def _of_spec(job: Manifest) -> list[Cause]:
    """Return the errors in the spec: types first, then list keys. The definition does not require a spec."""
    if "spec" not in job:
        return []
    spec = job["spec"]
    return [
        *schema.causes(spec, "PyTorchJobSpec", "spec"),
        *_of_scale(section(job, "spec", "pytorchReplicaSpecs", "Worker").get("replicas")),
        *schema.duplicates(spec, "PyTorchJobSpec", "spec"),
    ]


def _of_scale(replicas: object) -> list[Cause]:
    """Return the errors in the number of workers, which the scale subresource validates."""
    path = ".spec.pytorchReplicaSpecs.Worker.replicas"
    if not isinstance(replicas, int) or 0 <= replicas < 2**31:
        return []
    if replicas < 0:
        return [invalid(path, replicas, "should be a non-negative integer")]
    return [invalid(path, replicas, f"should be less than or equal to {2**31 - 1}")]


def _of_transition(old: Manifest, new: Manifest) -> list[Cause]:
    path = ("spec", "runPolicy", "schedulingPolicy")
    before, after = section(old, *path).get("queue"), section(new, *path).get("queue")
    if before is None or after is None or before == after:
        return []
    field = ".".join((*path, "queue"))
    return [invalid(field, "string", f"{field} is immutable")]


def _check_webhook(job: Manifest, more: list[Cause]) -> None:
    unreadable = next(schema.unreadable(job.get("spec", {}), "PyTorchJobSpec", f"{JOB}.spec"), None)
    if unreadable is not None:
        raise Refused(400, "", f'admission webhook "{WEBHOOK}" denied the request: {unreadable}')
    wrong = [*webhook.causes(job), *more]
    if wrong:
        raise denied(wrong)

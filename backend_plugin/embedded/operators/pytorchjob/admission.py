"""Validates and completes PyTorchJobs in the order of the API server and the operator's webhook."""

import json
from typing import Any, Final

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.pod_rules.field_errors import FieldError, build_invalid_error
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import metadata
from backend_plugin.embedded.admission.api_errors import (
    build_bad_request,
    build_unprocessable_resource,
    build_webhook_denial,
)
from backend_plugin.embedded.operators.pytorchjob import webhook
from backend_plugin.embedded.operators.pytorchjob.job_schema import SCHEMA
from backend_plugin.embedded.operators.pytorchjob.job_spec import DIALECT, REPLICA_SPECS, WORKER

_KIND: Final = DIALECT.name
_API_VERSION: Final = DIALECT.resource.api_version
_QUALIFIED_KIND: Final = f"{_KIND}.{DIALECT.resource.group}"
_SPEC: Final = "PyTorchJobSpec"
# The limit of etcd for one object.
_MOST_BYTES: Final = 1536 * 1024


def admit_job(manifest: Manifest, *, upstream: bool = False) -> Manifest:
    """Return a new PyTorchJob as it is stored, without the metadata that the store adds.

    With `upstream`, accept the jobs that only this emulator rejects (see `webhook.check_upstream_gaps`).

    Raises:
        RequestRejected: If the API server or the webhook would reject the job.
    """
    _require_kind(manifest)
    job = _prune_job(manifest, metadata.read_client_fields(manifest))
    wrong = [
        *metadata.check_metadata(get_mapping(job, "metadata"), name_rules.check_subdomain),
        *_check_spec(job),
    ]
    if wrong:
        raise build_unprocessable_resource(_QUALIFIED_KIND, get_text(job, "metadata", "name"), wrong)
    _require_webhook_approval(job, [] if upstream else list(webhook.check_upstream_gaps(job)))
    return job


def admit_job_update(old: Manifest, new: Manifest, *, upstream: bool = False) -> Manifest:
    """Return a changed PyTorchJob as it is stored. Its status stays that of `old`.

    For `upstream`, see `admit_job`.

    Raises:
        RequestRejected: If the API server or the webhook would reject the change.
    """
    _require_kind(new)
    job = _prune_job(new, metadata.read_stored_fields(new))
    if "status" in old:
        job["status"] = old["status"]
    fields = get_mapping(job, "metadata")
    wrong = [
        *metadata.check_immutable_fields(old, fields),
        *metadata.check_metadata(fields, name_rules.check_subdomain),
        *_check_spec(job),
    ]
    wrong = wrong or _check_queue_change(old, job)
    if wrong:
        raise build_unprocessable_resource(_QUALIFIED_KIND, get_text(old, "metadata", "name"), wrong)
    _require_webhook_approval(job, [] if upstream else list(webhook.check_upstream_gaps(job)))
    return job


def _require_kind(manifest: Manifest) -> None:
    if manifest.get("kind") != _KIND or manifest.get("apiVersion") != _API_VERSION:
        object_type = f"{manifest.get('apiVersion')}, Kind={manifest.get('kind')}"
        raise build_bad_request(f"the object's type ({object_type}) is not {_API_VERSION}, Kind={_KIND}")


def _prune_job(manifest: Manifest, fields: Any) -> dict[str, Any]:
    job = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": fields}
    if manifest.get("spec") is not None:
        job["spec"] = SCHEMA.prune(manifest["spec"], _SPEC)
    if len(json.dumps(job)) > _MOST_BYTES:
        raise RequestRejected(413, "RequestEntityTooLarge", "etcdserver: request is too large")
    return job


def _check_spec(job: Manifest) -> list[FieldError]:
    """Return the errors in the spec: types first, then list keys. The CRD does not require a spec."""
    if "spec" not in job:
        return []
    spec = job["spec"]
    return [
        *SCHEMA.check_types(spec, _SPEC, "spec"),
        *_check_scale(get_mapping(job, "spec", REPLICA_SPECS, WORKER).get("replicas")),
        *SCHEMA.check_list_keys(spec, _SPEC, "spec"),
    ]


def _check_scale(replicas: object) -> list[FieldError]:
    """Return the errors in the number of workers, which the scale subresource validates."""
    path = f".spec.{REPLICA_SPECS}.{WORKER}.replicas"
    if not isinstance(replicas, int) or 0 <= replicas < 2**31:
        return []
    if replicas < 0:
        return [build_invalid_error(path, replicas, "should be a non-negative integer")]
    return [build_invalid_error(path, replicas, f"should be less than or equal to {2**31 - 1}")]


def _check_queue_change(old: Manifest, new: Manifest) -> list[FieldError]:
    path = ("spec", "runPolicy", "schedulingPolicy")
    before, after = get_mapping(old, *path).get("queue"), get_mapping(new, *path).get("queue")
    if before is None or after is None or before == after:
        return []
    field = ".".join((*path, "queue"))
    return [build_invalid_error(field, "string", f"{field} is immutable")]


def _require_webhook_approval(job: Manifest, more: list[FieldError]) -> None:
    unreadable = next(SCHEMA.check_decodable(job.get("spec", {}), _SPEC, f"{_KIND}.spec"), None)
    if unreadable is not None:
        raise RequestRejected(
            400, "", f'admission webhook "{webhook.WEBHOOK}" denied the request: {unreadable}'
        )
    wrong = [*webhook.check_job(job), *more]
    if wrong:
        raise build_webhook_denial(webhook.WEBHOOK, wrong)

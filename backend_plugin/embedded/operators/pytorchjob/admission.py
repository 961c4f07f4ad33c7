"""Validates and completes PyTorchJobs in the order of the API server and the operator's webhook."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_forbidden_error,
    build_invalid_error,
    build_required_error,
    build_unsupported_error,
)
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import metadata
from backend_plugin.embedded.admission.api_errors import build_unprocessable_resource, build_webhook_denial
from backend_plugin.embedded.operators.pytorchjob.job_schema import SCHEMA
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    CONTAINER,
    DIALECT,
    MASTER,
    OWN_MANAGER,
    REPLICA_SPECS,
    ROLES,
    WORKER,
)

_KIND: Final = DIALECT.name
_QUALIFIED_KIND: Final = f"{_KIND}.{DIALECT.resource.group}"
_SPEC: Final = f"{_KIND}Spec"
# The limit of etcd for one object.
_MOST_BYTES: Final = 1536 * 1024
WEBHOOK: Final = "validator.pytorchjob.training-operator.kubeflow.org"
_MANAGERS: Final = (OWN_MANAGER, "kueue.x-k8s.io/multikueue")
# The limit for one job. Creating thousands of pods in one pass would block the event loop for too long.
MOST_REPLICAS: Final = 1_000
_SPECS: Final = f"spec.{REPLICA_SPECS}"


def admit_job(manifest: Manifest, *, upstream: bool = False) -> Manifest:
    """Return a new PyTorchJob in its stored form: with defaults, but without the uid, version and times.

    With `upstream`, accept the jobs that only this emulator rejects (see `_check_upstream_gaps`).

    Raises:
        RequestRejected: If the API server or the webhook would reject the job.
    """
    job = _prune_job(manifest, metadata.read_client_fields)
    wrong = [
        *metadata.check_metadata(get_mapping(job, "metadata"), name_rules.check_subdomain),
        *_check_spec(job),
    ]
    if wrong:
        raise build_unprocessable_resource(_QUALIFIED_KIND, get_text(job, "metadata", "name"), wrong)
    _require_webhook_approval(job, upstream=upstream)
    return job


def admit_job_update(old: Manifest, new: Manifest, *, upstream: bool = False) -> Manifest:
    """Return the changed PyTorchJob `new` in its stored form, with the status of the stored job `old`.

    For `upstream`, see `admit_job`.

    Raises:
        RequestRejected: If the API server or the webhook would reject the change.
    """
    job = _prune_job(new, metadata.read_stored_fields)
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
    _require_webhook_approval(job, upstream=upstream)
    return job


def _prune_job(manifest: Manifest, read: Callable[[Manifest], dict[str, Any]]) -> dict[str, Any]:
    job = SCHEMA.prune_object(manifest, DIALECT.resource.api_version, _KIND, read)
    if len(json.dumps(job)) > _MOST_BYTES:
        raise RequestRejected(413, "RequestEntityTooLarge", "etcdserver: request is too large")
    return job


def _check_spec(job: Manifest) -> list[FieldError]:
    """Return the errors in the spec: wrong types first, then repeated list keys. A spec is not required."""
    if "spec" not in job:
        return []
    spec = job["spec"]
    return [
        *SCHEMA.check_types(spec, _SPEC, "spec"),
        *_check_scale(get_mapping(job, "spec", REPLICA_SPECS, WORKER).get("replicas")),
        *SCHEMA.check_list_keys(spec, _SPEC, "spec"),
    ]


def _check_scale(replicas: object) -> list[FieldError]:
    """Return an error if `replicas`, the number of workers, is out of the range of the scale subresource."""
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


def _require_webhook_approval(job: Manifest, *, upstream: bool) -> None:
    unreadable = next(SCHEMA.check_decodable(job.get("spec", {}), _SPEC, f"{_KIND}.spec"), None)
    if unreadable is not None:
        raise RequestRejected(400, "", f'admission webhook "{WEBHOOK}" denied the request: {unreadable}')
    wrong = [*_check_webhook_rules(job), *([] if upstream else _check_upstream_gaps(job))]
    if wrong:
        raise build_webhook_denial(WEBHOOK, wrong)


def _check_webhook_rules(job: Manifest) -> Iterator[FieldError]:
    name = get_text(job, "metadata", "name")
    wrong = name_rules.check_dns_1035_label(name)
    if wrong:
        yield build_invalid_error("metadata.name", name, f"should match: {','.join(wrong)}")
    spec = get_mapping(job, "spec")
    manager = get_mapping(spec, "runPolicy").get("managedBy")
    if manager is not None and manager not in _MANAGERS:
        yield build_unsupported_error("spec.runPolicy.managedBy", manager, _MANAGERS)
    yield from _check_elastic_policy(spec)
    if REPLICA_SPECS not in spec:
        yield build_required_error(_SPECS, "must be required")
    specs = get_mapping(spec, REPLICA_SPECS)
    for role in sorted(specs):
        yield from _check_role(role, get_mapping(specs, role))


def _check_upstream_gaps(job: Manifest) -> Iterator[FieldError]:
    """Yield the errors that this emulator reports in addition to those of the operator's webhook.

    The additional errors are a job without roles, which the operator ignores, and a job with too many
    replicas for one machine.
    """
    specs = get_mapping(job, "spec", REPLICA_SPECS)
    if not specs:
        yield build_required_error(_SPECS, "must be required")
    replicas = sum(get_int(specs, role, "replicas") or 0 for role in specs)
    if replicas > MOST_REPLICAS:
        yield build_forbidden_error(
            _SPECS, f"must have at most {MOST_REPLICAS} replicas in total, has {replicas}"
        )


def _check_elastic_policy(spec: Manifest) -> Iterator[FieldError]:
    if "elasticPolicy" not in spec:
        return
    if WORKER not in get_mapping(spec, REPLICA_SPECS):
        yield build_required_error(f"{_SPECS}[Worker]", "must be configured if elastic policy is used")
    if "nProcPerNode" in get_mapping(spec, "elasticPolicy") and "nprocPerNode" in spec:
        yield build_forbidden_error(
            "spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode"
        )


def _check_role(role: str, spec: Manifest) -> Iterator[FieldError]:
    path = f"{_SPECS}[{role}]"
    if role not in ROLES:
        yield build_unsupported_error(path, role, ROLES)
    yield from _check_containers(get_mappings(spec, "template", "spec", "containers"), path)
    replicas = spec.get("replicas")
    if role == MASTER:
        if replicas != 1:
            yield build_forbidden_error(f"{path}.replicas", "must be 1")
    elif isinstance(replicas, int) and replicas < 1:
        yield build_forbidden_error(f"{path}.replicas", "must be at least 1")


def _check_containers(containers: list[Manifest], role: str) -> Iterator[FieldError]:
    path = f"{role}.template.spec.containers"
    if not containers:
        yield build_required_error(path, "must be specified")
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield build_required_error(f"{path}[{index}].image", "must be required")
    if all(container.get("name") != CONTAINER for container in containers):
        yield build_required_error(path, f"must have at least one container with name {CONTAINER}")

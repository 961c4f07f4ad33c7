"""Validates and completes TrainJobs and TrainingRuntimes as the API server and the webhooks of Trainer do.

Fields that the embedded cluster does not support are rejected, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.dialects.trainjob.placement import EXCLUSIVE_TOPOLOGY
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.pod_rules.field_errors import FieldError, build_forbidden_error, build_invalid_error
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import metadata
from backend_plugin.embedded.admission.api_errors import build_unprocessable_resource, build_webhook_denial
from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.operators.trainjob.job_spec import (
    ANCESTOR,
    CONTAINER,
    DIALECT,
    OWN_MANAGER,
    RESOURCE,
    ROLE,
    RUNTIME,
)
from backend_plugin.embedded.operators.trainjob.schema import SCHEMA

_WEBHOOK: Final = "validator.trainjob.trainer.kubeflow.org"
_DEFAULTER: Final = "defaulter.trainjob.trainer.kubeflow.org"
_RUNTIME_WEBHOOK: Final = "validator.trainingruntime.trainer.kubeflow.org"
_MANAGERS: Final = (OWN_MANAGER, "kueue.x-k8s.io/multikueue")
_KINDS: Final = (RUNTIME, "ClusterTrainingRuntime")
_IMMUTABLE: Final = ("runtimeRef", "trainer", "managedBy")
_MOST_NODES: Final = 1_000
"""The maximum number of nodes of a job. Creating more pods would block the event loop for too long."""
_NAME: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_REPLICATED_JOBS: Final = "spec.template.spec.replicatedJobs"
_NO_INITIALIZERS: Final = (
    "the embedded cluster runs no initializers, because it runs no images: leave dataset and model out, or "
    "use pyflyte run"
)
_NO_MPI: Final = (
    "the embedded cluster runs no MPI jobs, because its nodes have no sshd: use pyflyte run, or a cluster "
    "with Kubeflow Trainer"
)


def admit_job(manifest: Manifest) -> Manifest:
    """Return a new TrainJob in its stored form: with defaults, but without the uid, version and times.

    Raises:
        RequestRejected: If the API server or the webhook would reject the job.
    """
    job = SCHEMA.prune_object(manifest, RESOURCE.api_version, DIALECT.name, metadata.read_client_fields)
    _require_valid(job, [*_check_job(job)])
    _require_supported(job, manifest)
    return job


def admit_job_update(old: Manifest, new: Manifest) -> Manifest:
    """Return the changed TrainJob `new` in its stored form, with the status of the stored job `old`.

    Raises:
        RequestRejected: If the API server or the webhook would reject the change.
    """
    job = SCHEMA.prune_object(new, RESOURCE.api_version, DIALECT.name, metadata.read_stored_fields)
    before, after = get_mapping(old, "spec"), get_mapping(job, "spec")
    wrong = [
        *metadata.check_immutable_fields(old, get_mapping(job, "metadata")),
        *_check_job(job),
        *(
            build_invalid_error(f"spec.{field}", after[field], "field is immutable")
            for field in _IMMUTABLE
            if field in before and field in after and before[field] != after[field]
        ),
    ]
    _require_valid(job, wrong)
    _require_supported(job, new)
    return {**job, "status": old["status"]} if "status" in old else job


def find_runtime(job: Manifest) -> Key:
    """Return the key of the training runtime of a job."""
    reference, found = get_mapping(job, "spec", "runtimeRef"), get_mapping(job, "metadata")
    return Key(get_text(reference, "kind"), get_text(found, "namespace"), get_text(reference, "name"))


def require_runtime(job: Manifest, runtime: Manifest | None) -> None:
    """Raise `RequestRejected` if the training runtime of a job is missing or of an unsupported kind."""
    reference = get_mapping(job, "spec", "runtimeRef")
    kind, name = (get_text(reference, key) for key in ("kind", "name"))
    group = get_text(reference, "apiGroup")
    if kind not in _KINDS or group != RESOURCE.group:
        message = f'admission webhook "{_WEBHOOK}" denied the request: unsupported runtime: {kind}.{group}'
        raise RequestRejected(403, "Forbidden", message)
    if runtime is None:
        what = kind[0].lower() + kind[1:]
        missing = f'{kind}.{group} "{name}" not found: specified {what} must be created before the TrainJob'
        raise build_webhook_denial(
            _WEBHOOK, [build_invalid_error("spec.runtimeRef", reference, f"{missing} is created")]
        )


def admit_runtime(manifest: Manifest) -> Manifest:
    """Return a new TrainingRuntime in its stored form: with defaults, but without the uid, version and times.

    Raises:
        RequestRejected: If the API server or the webhook would reject the runtime.
    """
    runtime = SCHEMA.prune_object(manifest, RESOURCE.api_version, RUNTIME, metadata.read_client_fields)
    _require_valid(runtime, [])
    jobs = get_mappings(get_mapping(runtime, "spec", "template", "spec"), "replicatedJobs")
    wrong = [error for index, job in enumerate(jobs) for error in _check_replicated_job(job, index)]
    if wrong:
        raise build_webhook_denial(_RUNTIME_WEBHOOK, wrong)
    _require_runnable(runtime, manifest, [get_text(job, "name") for job in jobs])
    _require_supported(runtime, manifest)
    if any(EXCLUSIVE_TOPOLOGY in get_mapping(job, "template", "metadata", "annotations") for job in jobs):
        path = f"{_REPLICATED_JOBS}.template.metadata.annotations[{EXCLUSIVE_TOPOLOGY}]"
        raise _build_unsupported(runtime, path, "the embedded cluster does not support it")
    if [get_text(job, "name") for job in jobs] != [ROLE]:
        detail = f"the embedded cluster supports exactly one replicated job, {ROLE}"
        raise _build_unsupported(runtime, _REPLICATED_JOBS, detail)
    return runtime


def _require_runnable(runtime: Manifest, manifest: Manifest, names: Sequence[str]) -> None:
    """Raise `RequestRejected` for a training runtime with initializers or MPI, which are not supported.

    `names` are the names of its replicated jobs. `manifest` is the runtime before admission, `runtime` after.
    """
    if DIALECT.initializers.intersection(names):
        raise _build_unsupported(runtime, _REPLICATED_JOBS, _NO_INITIALIZERS)
    if get_mapping(manifest, "spec", "mlPolicy").get("mpi") is not None:
        raise _build_unsupported(runtime, "spec.mlPolicy.mpi", _NO_MPI)


def _require_valid(made: Manifest, wrong: list[FieldError]) -> None:
    kind, spec = f"{made['kind']}Spec", made.get("spec", {})
    types = [*SCHEMA.check_types(spec, kind, "spec")]
    mistyped = next((each for each in types if "must be of type" in each.message), None)
    if mistyped is not None and made["kind"] == DIALECT.name:
        # The defaulting webhook decodes the job before the API server validates it.
        raise RequestRejected(400, "", f'admission webhook "{_DEFAULTER}" denied the request: {mistyped}')
    wrong = [
        *metadata.check_metadata(get_mapping(made, "metadata"), name_rules.check_subdomain),
        *types,
        *SCHEMA.check_list_keys(spec, kind, "spec"),
        *wrong,
    ]
    if wrong:
        raise _build_rejection(made, wrong)
    undecodable = next(SCHEMA.check_decodable(spec, kind, kind), None)
    if undecodable is not None:
        raise RequestRejected(400, "", f'admission webhook "{_DEFAULTER}" denied the request: {undecodable}')


def _check_job(job: Manifest) -> Iterator[FieldError]:
    """Yield an error for each value that violates a validation rule of the CRD. Types are not checked."""
    name, spec = get_text(get_mapping(job, "metadata"), "name"), get_mapping(job, "spec")
    if _NAME.fullmatch(name) is None:
        yield build_invalid_error("metadata.name", name, "metadata.name must match RFC 1035 DNS label format")
    if len(name) > name_rules.LABEL_LENGTH:
        detail = f"metadata.name must be no more than {name_rules.LABEL_LENGTH} characters"
        yield build_invalid_error("metadata.name", name, detail)
    if not 1 <= len(get_text(get_mapping(spec, "runtimeRef"), "name")) <= name_rules.SUBDOMAIN_LENGTH:
        yield build_invalid_error("spec.runtimeRef.name", "", "should have 1 to 253 characters")
    if spec.get("managedBy", OWN_MANAGER) not in _MANAGERS:
        detail = f"ManagedBy must be {' or '.join(_MANAGERS)} if set"
        yield build_invalid_error("spec.managedBy", spec["managedBy"], detail)


def _check_replicated_job(job: Manifest, index: int) -> Iterator[FieldError]:
    path = f"{_REPLICATED_JOBS}[{index}]"
    if get_text_map(get_mapping(job, "template", "metadata"), "labels").get(ANCESTOR) != "trainer":
        return
    if job.get("replicas", 1) != 1:
        yield build_invalid_error(f"{path}.replicas", job["replicas"], "always must be 1")
    containers = get_mappings(get_mapping(job, "template", "spec", "template", "spec"), "containers")
    if all(each.get("name") != CONTAINER for each in containers):
        detail = f"must have container with name {CONTAINER} for the ancestor trainer"
        yield build_invalid_error(f"{path}.template.spec.template.spec.containers", "array", detail)


def _require_supported(made: Manifest, manifest: Manifest) -> None:
    spec = get_mapping(made, "spec")
    dropped = _find_dropped(manifest.get("spec"), spec, "spec")
    wrong = [build_forbidden_error(path, "the embedded cluster does not support it") for path in dropped]
    wrong += [
        build_forbidden_error(f"spec.{field}.numNodes", f"must be at most {_MOST_NODES}")
        for field in ("trainer", "mlPolicy")
        if (get_int(get_mapping(spec, field), "numNodes") or 0) > _MOST_NODES
    ]
    if wrong:
        raise _build_rejection(made, wrong)


def _find_dropped(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields in `given` that `ResourceSchema.prune` has dropped, except nulls."""
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for key, value in given.items():
            if key in kept:
                yield from _find_dropped(value, kept[key], f"{path}.{key}")
            elif value is not None:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(kept, list):
        for index, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from _find_dropped(value, other, f"{path}[{index}]")


def _build_rejection(made: Manifest, wrong: list[FieldError]) -> RequestRejected:
    name = get_text(get_mapping(made, "metadata"), "name")
    return build_unprocessable_resource(f"{made['kind']}.{RESOURCE.group}", name, wrong)


def _build_unsupported(made: Manifest, path: str, detail: str) -> RequestRejected:
    return _build_rejection(made, [build_forbidden_error(path, detail)])

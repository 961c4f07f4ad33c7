"""Rules of the webhook of training-operator 1.9 for PyTorchJobs, with its messages in its order."""

from collections.abc import Iterator
from typing import Final

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
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    CONTAINER,
    MASTER,
    OWN_MANAGER,
    REPLICA_SPECS,
    ROLES,
    WORKER,
)

WEBHOOK: Final = "validator.pytorchjob.training-operator.kubeflow.org"
_MANAGERS: Final = (OWN_MANAGER, "kueue.x-k8s.io/multikueue")
# The limit for one job. Creating thousands of pods in one pass would block the event loop for too long.
MOST_REPLICAS: Final = 1_000
_SPECS: Final = f"spec.{REPLICA_SPECS}"


def check_job(job: Manifest) -> Iterator[FieldError]:
    """Yield the errors that the operator's webhook reports."""
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


def check_upstream_gaps(job: Manifest) -> Iterator[FieldError]:
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

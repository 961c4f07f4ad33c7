"""Rules of the webhook of training-operator 1.9 for PyTorchJobs, with its messages in its order."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import names
from backend_plugin.embedded.admission.refusal import Cause, forbidden, invalid, required, unsupported

_MANAGERS: Final = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_ROLES: Final = ("Master", "Worker")
_CONTAINER: Final = "pytorch"
# The limit for one job. Creating thousands of pods in one pass would block the event loop for too long.
MOST_REPLICAS: Final = 1_000
_SPECS: Final = "spec.pytorchReplicaSpecs"


def causes(job: Manifest) -> Iterator[Cause]:
    """Yield the errors that the operator's webhook reports."""
    name = text(section(job, "metadata"), "name")
    wrong = names.dns_1035_label(name)
    if wrong:
        yield invalid("metadata.name", name, f"should match: {','.join(wrong)}")
    spec = section(job, "spec")
    manager = section(spec, "runPolicy").get("managedBy")
    if manager is not None and manager not in _MANAGERS:
        yield unsupported("spec.runPolicy.managedBy", manager, _MANAGERS)
    yield from _of_elastic(spec)
    if "pytorchReplicaSpecs" not in spec:
        yield required(_SPECS, "must be required")
    specs = section(spec, "pytorchReplicaSpecs")
    for role in sorted(specs):
        yield from _of_role(role, section(specs, role))


def beyond(job: Manifest) -> Iterator[Cause]:
    """Yield the errors that the operator's webhook should report but does not.

    These are a job without roles, which the operator ignores, and a job with too many replicas for this
    emulator.
    """
    specs = section(job, "spec", "pytorchReplicaSpecs")
    if not specs:
        yield required(_SPECS, "must be required")
    asked = sum(number(section(specs, role), "replicas") or 0 for role in specs)
    if asked > MOST_REPLICAS:
        yield forbidden(_SPECS, f"must have at most {MOST_REPLICAS} replicas in total, has {asked}")


def _of_elastic(spec: Manifest) -> Iterator[Cause]:
    if "elasticPolicy" not in spec:
        return
    if "Worker" not in section(spec, "pytorchReplicaSpecs"):
        yield required(f"{_SPECS}[Worker]", "must be configured if elastic policy is used")
    if "nProcPerNode" in section(spec, "elasticPolicy") and "nprocPerNode" in spec:
        yield forbidden("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")


def _of_role(role: str, spec: Manifest) -> Iterator[Cause]:
    path = f"{_SPECS}[{role}]"
    if role not in _ROLES:
        yield unsupported(path, role, _ROLES)
    yield from _of_containers(entries(section(spec, "template", "spec"), "containers"), path)
    replicas = spec.get("replicas")
    if role == "Master" and replicas != 1:
        yield forbidden(f"{path}.replicas", "must be 1")
    elif role != "Master" and isinstance(replicas, int) and replicas < 1:
        yield forbidden(f"{path}.replicas", "must be at least 1")


def _of_containers(containers: list[Manifest], role: str) -> Iterator[Cause]:
    path = f"{role}.template.spec.containers"
    if not containers:
        yield required(path, "must be specified")
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield required(f"{path}[{index}].image", "must be required")
    if all(container.get("name") != _CONTAINER for container in containers):
        yield required(path, f"must have at least one container with name {_CONTAINER}")

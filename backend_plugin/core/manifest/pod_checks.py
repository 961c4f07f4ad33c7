"""Checks of a final pod spec for errors that the API server or the operator would report only in events."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core import pod_rules
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup
from backend_plugin.core.manifest import pod_resources
from backend_plugin.core.manifest.pod_containers import KINDS
from backend_plugin.core.manifest.pod_draft import PodDraft
from backend_plugin.core.pod_rules.field_errors import FieldError
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, list_repeated

# Some releases of Kubernetes replace a negative value by 1.
_UNCERTAIN: Final = ("spec.terminationGracePeriodSeconds",)


def check_pod(spec: Fields, draft: PodDraft, settings: Settings, dialect: Dialect) -> Iterator[Problem]:
    """Yield a problem for each invalid container and repeated name in a pod spec with final resources."""
    for kind in KINDS:
        for index, container in enumerate(spec.get(kind, ())):
            path = draft.get_container_path(kind, index)
            yield from _check_container(container, path, settings)
            if container["name"] == dialect.container and kind == "containers":
                yield from dialect.check_container(container, path)
    yield from _check_repeated_names(spec, draft.path, dialect.container)


def _check_repeated_names(spec: Fields, path: str, trainer: str) -> Iterator[Problem]:
    remedy = "rename one of them"
    remedies = {trainer: f"{remedy}; {trainer} is the name of the training container"}
    for name in list_repeated([each["name"] for kind in KINDS for each in spec.get(kind, ())]):
        message = "is the name of two containers"
        yield build_problem(f"{path}.containers", name, message, remedies.get(name, remedy))
    for name in list_repeated([each.get("name", "") for each in spec.get("volumes", ())]):
        yield build_problem(f"{path}.volumes", name, "is the name of two volumes", remedy)


def check_api_rules(spec: Fields, draft: PodDraft, dialect: Dialect) -> Iterator[Problem]:
    """Yield the problems for which the API server would later reject the pod when the operator creates it.

    `pod_resources` checks the resources.
    """
    for error in pod_rules.check_spec(spec):
        if not _is_uncertain(error, dialect):
            yield build_problem(
                f"{draft.path}.{error.field.removeprefix('spec.')}",
                error.value,
                f"would be rejected by the cluster: {error.detail or error.kind.lower()}",
                "correct it; it may be the PodTemplate's",
            )


def _is_uncertain(error: FieldError, dialect: Dialect) -> bool:
    """True if some API servers accept the invalid field, or a webhook or admission plugin may correct it."""
    # A webhook may add the missing volume of a mount to a pod. It adds no missing field to a mount; errors
    # about missing fields have no value. If the dialect has a prerequisite, the API server validates the pod
    # template in a Kubernetes Job, which the webhook does not change.
    is_of_mount = ".volumeMounts[" in error.field and error.value is not None
    return (is_of_mount and dialect.prerequisite is None) or error.field in _UNCERTAIN or not error.is_certain


def check_gpu_count(
    spec: Fields, group: ReplicaGroup, settings: Settings, dialect: Dialect
) -> Iterator[Problem]:
    """Yield a problem if a replica with GPUs starts more processes than it has GPUs."""
    trainer = next(each for each in spec["containers"] if each["name"] == dialect.container)
    gpus = pod_resources.read_container_resources(trainer, settings).limits.get(settings.gpu_resource_name)
    if gpus and gpus.is_whole and gpus.whole < group.processes:
        yield build_problem(
            "custom.elasticConfig.nprocPerNode",
            group.processes,
            f"is more than the {gpus.text} GPUs of a node",
            f"write at most {gpus.text}, or request {group.processes} GPUs",
        )


def _check_container(container: Fields, path: str, settings: Settings) -> Iterator[Problem]:
    if any(pod_resources.is_device(name) for name in pod_resources.get_resource_names(container)):
        yield from pod_resources.check_devices(
            pod_resources.read_container_resources(container, settings), path, settings
        )
    if not container.get("image"):
        yield build_problem(f"{path}.image", "", "is empty", "name the image to run")
    for place in list_repeated([each.get("mountPath", "") for each in container.get("volumeMounts", ())]):
        remedy = "leave one of the two out; one may be the PodTemplate's"
        yield build_problem(f"{path}.volumeMounts", place, "is the mount path of two volumes", remedy)

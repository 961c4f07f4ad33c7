"""Adds the ``extendedResources`` of a task template, and tolerations for extended resources, to a pod."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from flyteidl.core.tasks_pb2 import GPUAccelerator, SharedMemory

from backend_plugin.core.errors import Problem
from backend_plugin.core.manifest.pod_placement import with_requirements
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.schema_check import QUANTITY, check_value
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields
from kfpytorch_common.quantity import parse

_PATH: Final = "extendedResources.sharedMemory"


def with_accelerator(spec: Fields, accelerator: GPUAccelerator, settings: Settings) -> Fields:
    """Return a spec that requires nodes with this accelerator and tolerates their taints."""
    expressions = build_accelerator_requirements(accelerator, settings)
    added = _build_accelerator_tolerations(accelerator, settings)
    if added:
        spec = {**spec, "tolerations": [*spec.get("tolerations", ()), *added]}
    return with_requirements(spec, expressions) if expressions else spec


def has_gpu(spec: Fields, settings: Settings) -> bool:
    """True if a container of the spec has a GPU limit."""
    name = settings.gpu_resource_name
    return any(name in each.get("resources", {}).get("limits", {}) for each in spec["containers"])


def build_accelerator_requirements(accelerator: GPUAccelerator, settings: Settings) -> list[Fields]:
    """Return the node label requirements for this accelerator."""
    requirements: list[Fields] = [
        {"key": label, "operator": "In", "values": [value]}
        for label, value in _list_node_labels(accelerator, settings)
    ]
    if accelerator.unpartitioned:
        unpartitioned = {"key": settings.gpu_partition_size_node_label, "operator": "DoesNotExist"}
        requirements.append(settings.gpu_unpartitioned_node_selector_requirement or unpartitioned)
    return requirements


def _build_accelerator_tolerations(accelerator: GPUAccelerator, settings: Settings) -> list[Fields]:
    tolerations: list[Fields] = [
        {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
        for label, value in _list_node_labels(accelerator, settings)
    ]
    if accelerator.unpartitioned and settings.gpu_unpartitioned_toleration is not None:
        tolerations.append(settings.gpu_unpartitioned_toleration)
    return tolerations


def _list_node_labels(accelerator: GPUAccelerator, settings: Settings) -> list[tuple[str, str]]:
    labels = [(settings.gpu_device_node_label, accelerator.device)] if accelerator.device else []
    if accelerator.WhichOneof("partition_size_value") == "partition_size":
        labels.append((settings.gpu_partition_size_node_label, accelerator.partition_size))
    return labels


def with_resource_tolerations(spec: Fields, claimed: Iterable[str], settings: Settings) -> Fields:
    """Return a spec that tolerates the taints of nodes with certain resources.

    These are the resources in `claimed` that the setting ``add-tolerations-for-extended-resources`` names.
    """
    tolerations = list(spec.get("tolerations", ()))
    for name in sorted({*claimed} & {*settings.add_tolerations_for_extended_resources}):
        toleration = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
        if toleration not in tolerations:
            tolerations.append(toleration)
    return {**spec, "tolerations": tolerations} if tolerations else spec


def with_shared_memory(spec: Fields, memory: SharedMemory, primary: str) -> Fields:
    """Return a spec with the shared memory mounted in the primary container.

    `check_shared_memory` must have found no problem.
    """
    # Without a size Flyte writes zero, which Kubernetes interprets as no limit.
    size = parse(memory.size_limit or "0").text
    volume = {"name": memory.mount_name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    mount = {"name": memory.mount_name, "mountPath": memory.mount_path}
    containers = [
        {**each, "volumeMounts": [*each.get("volumeMounts", ()), mount]} if each["name"] == primary else each
        for each in spec["containers"]
    ]
    return {**spec, "containers": containers, "volumes": [*spec.get("volumes", ()), volume]}


def check_shared_memory(spec: Fields, memory: SharedMemory, primary: str) -> Iterator[Problem]:
    """Yield a problem for each reason why the shared memory cannot be mounted."""
    for name, value in (("mountName", memory.mount_name), ("mountPath", memory.mount_path)):
        if not value:
            yield _problem(name, value, "is empty", "write one")
    if memory.size_limit:
        yield from check_value(memory.size_limit, QUANTITY, f"{_PATH}.sizeLimit")
    yield from _check_mount_conflicts(spec, memory, primary)


def _check_mount_conflicts(spec: Fields, memory: SharedMemory, primary: str) -> Iterator[Problem]:
    mounts: Sequence[Fields] = next(
        (each.get("volumeMounts", ()) for each in spec["containers"] if each["name"] == primary), ()
    )
    names = {each.get("name") for each in (*spec.get("volumes", ()), *mounts)}
    if memory.mount_name in names:
        yield _problem("mountName", memory.mount_name, "is the name of another volume", "write another name")
    if memory.mount_path in {each.get("mountPath") for each in mounts}:
        yield _problem(
            "mountPath", memory.mount_path, "is the mount path of another volume", "leave one of them out"
        )


def _problem(field: str, value: str, message: str, remedy: str) -> Problem:
    return build_problem(f"{_PATH}.{field}", value, message, remedy)

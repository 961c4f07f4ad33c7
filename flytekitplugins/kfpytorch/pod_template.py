"""Build the pod template of a replica: the author's, with shared memory if the config requires it."""

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flyteidl.core.tasks_pb2 import Resources as ResourcesMessage
from flytekit import PodTemplate
from flytekit.core.pod_template import PRIMARY_CONTAINER_DEFAULT_NAME
from flytekit.models.task import Container, K8sObjectMetadata, K8sPod

from flytekitplugins.kfpytorch.problems import suggest_name
from flytekitplugins.kfpytorch.validators import is_list

MOUNT_PATH: Final = "/dev/shm"  # noqa: S108 - the mount point of POSIX shared memory, not a temporary file
VOLUME_NAME: Final = "shm"

_WAY_OUT: Final = "set increase_shared_mem=False in the task config"


def find_problems(template: PodTemplate | None, *, shared_memory: bool) -> Iterator[str]:
    """Yield a sentence for each reason why `build` cannot use `template`.

    Unknown and missing fields of the template are not reported here; `build` raises an error for them.
    """
    if template is None or template.pod_spec is None:
        return
    spec = template.pod_spec
    if not isinstance(spec, Mapping) and not hasattr(spec, "containers"):
        yield f"pod_template.pod_spec={spec!r}: must be a V1PodSpec or a dict of the same fields"
    elif shared_memory:
        yield from _find_conflicts(spec, template.primary_container_name)


def _find_conflicts(spec: object, primary: str) -> Iterator[str]:
    containers = _list_items(spec, "containers")
    mounts = _list_items(_find_container(spec, primary), "volume_mounts")
    if len(containers) > 1:
        yield (
            f"pod_template has {len(containers)} containers, so it has to define their shared memory itself: "
            f"{_WAY_OUT} and mount a memory volume where it is needed"
        )
    elif any(str(_get_field(mount, "mount_path")).rstrip("/") == MOUNT_PATH for mount in mounts):
        yield f"pod_template already mounts {MOUNT_PATH}: remove the mount or {_WAY_OUT}"
    if any(_get_field(volume, "name") == VOLUME_NAME for volume in _list_items(spec, "volumes")):
        yield f"pod_template already has a volume named {VOLUME_NAME!r}: rename it or {_WAY_OUT}"


def read_resources(template: PodTemplate | None) -> dict[str, object]:
    """Return the amount of each resource of the primary container: its limit, or else its request.

    The key of a device is the last part of the resource name: ``gpu`` for ``nvidia.com/gpu``.
    """
    if template is None:
        return {}
    resources = _get_field(_find_container(template.pod_spec, template.primary_container_name), "resources")
    stated = {**(_get_field(resources, "requests") or {}), **(_get_field(resources, "limits") or {})}
    return {str(name).rpartition("/")[2]: value for name, value in stated.items()}


def build(template: PodTemplate | None, *, shared_memory: bool) -> PodTemplate | None:
    """Return the template that flytekit serializes: `template` itself if no change is necessary.

    If `shared_memory` is true, return a copy whose primary container has memory mounted on ``/dev/shm``.

    Raises:
        ValueError: If a pod spec given as a dict has an unknown field or lacks a required one, or if the
            template conflicts with the shared memory.
    """
    if template is not None and isinstance(template.pod_spec, Mapping):
        spec = _convert_to_model("V1PodSpec", {"containers": [], **template.pod_spec}, "pod_spec")
        template = dataclasses.replace(template, pod_spec=spec)
    if not shared_memory:
        return template
    built = PodTemplate() if template is None else copy.deepcopy(template)
    add_shared_mem_volume_to_pod_template(built)
    return built


def add_shared_mem_volume_to_pod_template(pod_template: PodTemplate) -> None:
    """Mount memory on ``/dev/shm`` of the primary container of `pod_template`, in place.

    flytekit's own plugin has a function with this name, which other code may import.

    Raises:
        ValueError: If the template conflicts with the shared memory. In this case, it is unchanged.
    """
    for problem in find_problems(pod_template, shared_memory=True):
        raise ValueError(problem)
    models = _import_models()
    spec = models.V1PodSpec(containers=[]) if pod_template.pod_spec is None else pod_template.pod_spec
    volume = models.V1Volume(name=VOLUME_NAME, empty_dir=models.V1EmptyDirVolumeSource(medium="Memory"))
    mount = models.V1VolumeMount(name=VOLUME_NAME, mount_path=MOUNT_PATH)
    primary = _find_container(spec, pod_template.primary_container_name)
    if primary is None:  # A missing container is added, as in flytekit.
        primary = models.V1Container(name=pod_template.primary_container_name)
        spec.containers = [*_list_items(spec, "containers"), primary]
        primary = spec.containers[-1]
    # Assign new lists: newer kubernetes models copy the lists that they receive, so append has no effect.
    primary.volume_mounts = [*(primary.volume_mounts or []), mount]
    spec.volumes = [*(spec.volumes or []), volume]
    pod_template.pod_spec = spec


def serialize_default_pod(container: Container) -> K8sPod:
    """Return the pod that flytekit serializes for a task with shared memory and without a pod template.

    flytekit itself would import kubernetes to build this pod, which takes about half a second. This function
    does not import kubernetes.
    """
    resources = {
        part: {
            ResourcesMessage.ResourceName.Name(entry.name).lower().replace("_", "-"): entry.value
            for entry in getattr(container.resources, part)
        }
        for part in ("limits", "requests")
    }
    primary = {
        "name": PRIMARY_CONTAINER_DEFAULT_NAME,
        "image": container.image,
        "command": container.command,
        "args": container.args,
        "env": [
            {"name": name} if value is None else {"name": name, "value": value}
            for name, value in container.env.items()
        ],
        "volumeMounts": [{"name": VOLUME_NAME, "mountPath": MOUNT_PATH}],
        **({"resources": resources} if any(resources.values()) else {}),
    }
    volume = {"name": VOLUME_NAME, "emptyDir": {"medium": "Memory"}}
    spec = {"containers": [primary], "volumes": [volume]}
    return K8sPod(K8sObjectMetadata(labels=None, annotations=None), spec)


def _find_container(spec: object, name: str) -> Any:
    containers = _list_items(spec, "containers")
    return next((each for each in containers if _get_field(each, "name") == name), None)


def _list_items(holder: object, name: str) -> list[Any]:
    return _get_field(holder, name) or []


def _get_field(holder: object, name: str) -> Any:
    """Return a field of a kubernetes model or a dict; None if it is absent. `name` is in snake_case.

    The key of a dict may be in camelCase or in snake_case. If both exist, the one in camelCase is read.
    """
    if not isinstance(holder, Mapping):
        return getattr(holder, name, None)
    first, *rest = name.split("_")
    return holder.get(first + "".join(word.capitalize() for word in rest), holder.get(name))


# The types in kubernetes models: `list[X]` and `dict(str, X)` up to version 36 of the package kubernetes,
# `List[X]` and `Dict[str, X]` from version 37.
_LIST: Final = re.compile(r"[lL]ist\[(.*)\]")
_DICT: Final = re.compile(r"(?:dict\(|Dict\[)\w+, (.*)[\])]")


def _import_models() -> Any:
    from kubernetes.client import models  # The import takes most of a second; few processes need it.

    return models


def _convert_to_model(type_name: str, value: object, path: str) -> Any:
    """Convert a value and all values within it to kubernetes models.

    `type_name` is a type in kubernetes models, such as ``V1PodSpec``, ``list[V1Container]`` or ``str``. Keys
    of dicts are those of a manifest or of the models. A number becomes text where the type is ``str``. Other
    scalars are returned unchanged. `path` is the path of the value in the pod spec, for error messages.

    Raises:
        ValueError: If a dict has an unknown field or lacks a required one.
    """
    if isinstance(value, Mapping):
        if match := _DICT.fullmatch(type_name):
            return {key: _convert_to_model(match[1], item, f"{path}.{key}") for key, item in value.items()}
        cls = getattr(_import_models(), type_name, None)
        return value if cls is None else _build_model(cls, value, path)
    if is_list(value) and (match := _LIST.fullmatch(type_name)):
        return [_convert_to_model(match[1], item, f"{path}[{place}]") for place, item in enumerate(value)]
    if type_name == "str" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)  # Manifests may contain `cpu: 4`; the models require text.
    return value


def _build_model(cls: Any, value: Mapping[str, object], path: str) -> Any:
    names = {wire: name for name, wire in cls.attribute_map.items()}
    arguments = {}
    for key, item in value.items():
        name = names.get(key, key)
        if name not in cls.attribute_map:
            hint = suggest_name(key, list(names))
            raise ValueError(f"{path}.{key}: {cls.__name__} has no such field{hint}")
        arguments[name] = _convert_to_model(cls.openapi_types[name], item, f"{path}.{key}")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error

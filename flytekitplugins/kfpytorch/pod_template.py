"""Build the pod template of a replica: the author's template, with shared memory if the config requires it.

kubernetes is imported only when a pod is built. The checks of a template do not need it.
"""

import copy
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flytekit import PodTemplate

from flytekitplugins.kfpytorch.kubernetes_models import Models, convert_to_model, import_models

MOUNT_PATH: Final = "/dev/shm"  # noqa: S108 - the mount point of POSIX shared memory, not a temporary file
VOLUME_NAME: Final = "shm"

_WAY_OUT: Final = "set increase_shared_mem=False in the task config"


def require_buildable(template: PodTemplate | None, *, shared_memory: bool) -> None:
    """Raise an error if `build` cannot build a template.

    Args:
        template: The author's template, or None.
        shared_memory: True if shared memory is to be added.

    Raises:
        ValueError: If the pod spec is neither a kubernetes model nor a dict, or conflicts with the shared
            memory.
    """
    for text in find_problems(template, shared_memory=shared_memory):
        raise ValueError(text)


def find_problems(template: PodTemplate | None, *, shared_memory: bool) -> Iterator[str]:
    """Yield a sentence for each reason why `build` cannot build `template`."""
    if template is None or template.pod_spec is None:
        return
    spec = template.pod_spec
    if not isinstance(spec, Mapping) and not hasattr(spec, "containers"):
        yield f"pod_template.pod_spec={spec!r}: must be a V1PodSpec or a dict of the same fields"
    elif shared_memory:
        yield from _find_conflicts(spec, template.primary_container_name)


def _find_conflicts(spec: object, primary: str) -> Iterator[str]:
    """Yield a sentence for each reason why the container `primary` cannot have shared memory."""
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
    """Return the resources of the primary container: the limit of each, or the request if it has no limit.

    The key of a device is the last part of its name: ``gpu`` for ``nvidia.com/gpu``.
    """
    if template is None:
        return {}
    resources = _get_field(_find_container(template.pod_spec, template.primary_container_name), "resources")
    stated = {**(_get_field(resources, "requests") or {}), **(_get_field(resources, "limits") or {})}
    return {str(name).rpartition("/")[2]: value for name, value in stated.items()}


def build(template: PodTemplate | None, *, shared_memory: bool) -> PodTemplate | None:
    """Build the template that flytekit serializes.

    Args:
        template: The author's template, or None. It is not changed.
        shared_memory: True if memory is mounted on ``/dev/shm`` of the primary container.

    Returns:
        A template with kubernetes models: the author's own if no change is necessary, or `None` if there is
        neither a template nor shared memory.

    Raises:
        ValueError: If the template cannot be built; see `require_buildable`. A dict is checked field by
            field.
    """
    if template is not None and isinstance(template.pod_spec, Mapping):
        models = import_models()
        spec = convert_to_model(models, "V1PodSpec", {"containers": [], **template.pod_spec}, "pod_spec")
        template = dataclasses.replace(template, pod_spec=spec)
    if not shared_memory:
        return template
    built = PodTemplate() if template is None else copy.deepcopy(template)
    add_shared_mem_volume_to_pod_template(built)
    return built


def add_shared_mem_volume_to_pod_template(pod_template: PodTemplate) -> None:
    """Mount memory on ``/dev/shm`` of the primary container of `pod_template`, in place.

    This function has the name of one in flytekit's own plugin, for code that imports it.
    ``@task(shared_memory=...)`` does the same without a template.

    Args:
        pod_template: The template; its pod spec is a kubernetes model or `None`.

    Raises:
        ValueError: If the template conflicts with the shared memory. It is not changed in this case.
    """
    require_buildable(pod_template, shared_memory=True)
    models = _get_models(pod_template.pod_spec)
    spec = models.V1PodSpec(containers=[]) if pod_template.pod_spec is None else pod_template.pod_spec
    volume = models.V1Volume(name=VOLUME_NAME, empty_dir=models.V1EmptyDirVolumeSource(medium="Memory"))
    mount = models.V1VolumeMount(name=VOLUME_NAME, mount_path=MOUNT_PATH)
    primary = _find_container(spec, pod_template.primary_container_name)
    if primary is None:  # It is added, as flytekit does.
        primary = models.V1Container(name=pod_template.primary_container_name)
        spec.containers = [*_list_items(spec, "containers"), primary]
        primary = spec.containers[-1]
    # New lists instead of append, because newer kubernetes models copy the lists that they receive.
    primary.volume_mounts = [*(primary.volume_mounts or []), mount]
    spec.volumes = [*(spec.volumes or []), volume]
    pod_template.pod_spec = spec


def _find_container(spec: object, name: str) -> Any:
    containers = _list_items(spec, "containers")
    return next((container for container in containers if _get_field(container, "name") == name), None)


def _get_models(spec: object) -> Models:
    """Return the package that contains the class of `spec`, for the objects that are added to `spec`."""
    package = sys.modules.get(type(spec).__module__.rpartition(".")[0])
    return package if hasattr(package, "V1VolumeMount") else import_models()


def _list_items(holder: object, name: str) -> list[Any]:
    return _get_field(holder, name) or []


def _get_field(holder: object, name: str) -> Any:
    """Return a field of a kubernetes model or a dict; None if it is absent. `name` is in snake_case.

    A dict may have the key in camelCase, which takes precedence, or in snake_case.
    """
    if not isinstance(holder, Mapping):
        return getattr(holder, name, None)
    first, *rest = name.split("_")
    return holder.get(first + "".join(word.capitalize() for word in rest), holder.get(name))

"""The pod of a replica: the author's template, with shared memory where a config asks for it.

The author's template is never changed, and kubernetes is imported only when a pod is built, which is
when somebody reads a task's ``pod_template``. A template is checked before, without it.
"""

import copy
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flytekit import PodTemplate

from flytekitplugins.kfpytorch.manifest import Models, default_models, to_model

MOUNT_PATH: Final = "/dev/shm"  # noqa: S108 - where POSIX shared memory lives, not a temporary file
VOLUME_NAME: Final = "shm"

_WAY_OUT: Final = "set increase_shared_mem=False in the task config"


def check(template: PodTemplate | None, *, shared_memory: bool) -> None:
    """Refuse a template that `build` could not build.

    Args:
        template: The author's template, if there is one.
        shared_memory: Whether shared memory is to be added.

    Raises:
        ValueError: If the pod spec is neither a kubernetes model nor a dict, or leaves no room for
            the shared memory.
    """
    for text in find_problems(template, shared_memory=shared_memory):
        raise ValueError(text)


def find_problems(template: PodTemplate | None, *, shared_memory: bool) -> Iterator[str]:
    """Yield a sentence for each reason why `build` could not build `template`; see `check`."""
    spec = None if template is None else template.pod_spec
    if template is None or spec is None:
        return
    if not isinstance(spec, Mapping) and not hasattr(spec, "containers"):
        yield f"pod_template.pod_spec={spec!r}: must be a V1PodSpec or a dict of the same fields"
        return
    if not shared_memory:
        return
    containers = _read(spec, "containers") or []
    if len(containers) > 1:
        yield (
            f"pod_template has {len(containers)} containers, so it says itself who shares which memory: "
            f"{_WAY_OUT} and mount a memory volume where it is needed"
        )
    elif any(_mounts_shared_memory(container, template.primary_container_name) for container in containers):
        yield f"pod_template already mounts {MOUNT_PATH}: remove the mount or {_WAY_OUT}"
    if any(_read(volume, "name") == VOLUME_NAME for volume in _read(spec, "volumes") or []):
        yield f"pod_template already has a volume named {VOLUME_NAME!r}: rename it or {_WAY_OUT}"


def _mounts_shared_memory(container: object, primary: str) -> bool:
    mounts = (_read(container, "volume_mounts") or []) if _read(container, "name") == primary else []
    return any(str(_read(mount, "mount_path")).rstrip("/") == MOUNT_PATH for mount in mounts)


def read_resources(template: PodTemplate | None) -> dict[str, object]:
    """Return the cpus and GPUs of the primary container: its limits, or its requests where it has no limit.

    A device counts as a GPU by its name, such as ``nvidia.com/gpu``.
    """
    spec = None if template is None else template.pod_spec
    containers = [] if template is None or spec is None else _read(spec, "containers") or []
    for container in containers:
        if template is not None and _read(container, "name") == template.primary_container_name:
            resources = _read(container, "resources")
            stated = {**(_read(resources, "requests") or {}), **(_read(resources, "limits") or {})}
            return {str(name).rpartition("/")[2]: value for name, value in stated.items()}
    return {}


def build(template: PodTemplate | None, *, shared_memory: bool) -> PodTemplate | None:
    """Build the template that flytekit serialises.

    Args:
        template: The author's template, if there is one; it stays as it is.
        shared_memory: Whether memory is mounted on ``/dev/shm`` of the primary container.

    Returns:
        A template made of kubernetes models: the author's own where there is nothing to do, and
        `None` where there is neither a template nor shared memory.

    Raises:
        ValueError: If the template cannot be built; see `check`. A dict is checked field by field.
    """
    if template is not None and isinstance(template.pod_spec, Mapping):
        models = default_models()
        spec = to_model(models, "V1PodSpec", {"containers": [], **template.pod_spec}, "pod_spec")
        template = dataclasses.replace(template, pod_spec=spec)
    elif template is not None and shared_memory:
        template = copy.deepcopy(template)
    if not shared_memory:
        return template
    built = PodTemplate() if template is None else template
    add_shared_mem_volume_to_pod_template(built)
    return built


def add_shared_mem_volume_to_pod_template(pod_template: PodTemplate) -> None:
    """Mount memory on ``/dev/shm`` of the primary container of `pod_template`, in place.

    For those who import upstream's function of this name; tasks build a template of their own.
    ``@task(shared_memory=...)`` does the same without a template.

    Args:
        pod_template: The template; its pod spec is a kubernetes model or `None`.

    Raises:
        ValueError: If it leaves no room for shared memory; it is unchanged then.
    """
    check(pod_template, shared_memory=True)
    models = _models_of(pod_template.pod_spec)
    spec = models.V1PodSpec(containers=[]) if pod_template.pod_spec is None else pod_template.pod_spec
    volume = models.V1Volume(name=VOLUME_NAME, empty_dir=models.V1EmptyDirVolumeSource(medium="Memory"))
    mount = models.V1VolumeMount(name=VOLUME_NAME, mount_path=MOUNT_PATH)
    primary = _primary(spec, pod_template.primary_container_name, models)
    # Assigned anew and not appended to: newer kubernetes models copy the lists they are given.
    primary.volume_mounts = [*(primary.volume_mounts or []), mount]
    spec.volumes = [*(spec.volumes or []), volume]
    pod_template.pod_spec = spec


def _primary(spec: Any, name: str, models: Models) -> Any:
    """The container of that name, made if it is not there yet, as flytekit would."""
    containers = spec.containers or []
    for container in containers:
        if container.name == name:
            return container
    spec.containers = [*containers, models.V1Container(name=name)]
    return spec.containers[-1]


def _models_of(spec: object) -> Models:
    """The models that `spec` belongs to, so that what is added is of the same make."""
    package = sys.modules.get(type(spec).__module__.rpartition(".")[0])
    return package if hasattr(package, "V1VolumeMount") else default_models()


def _read(holder: object, name: str) -> Any:
    """A field of a kubernetes model or of a dict, in either spelling."""
    if not isinstance(holder, Mapping):
        return getattr(holder, name, None)
    first, *rest = name.split("_")
    return holder.get(first + "".join(word.capitalize() for word in rest), holder.get(name))

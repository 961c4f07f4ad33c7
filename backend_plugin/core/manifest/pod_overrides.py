"""The ``with_overrides`` of a Flyte node, which no release of FlytePropeller sends to connectors yet."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from flyteidl.core.workflow_pb2 import TaskNodeOverrides

from backend_plugin.core.decoding.replica_specs import RESOURCE_NAMES
from backend_plugin.core.manifest.pod_draft import DECORATED, PRIMARY_KEY
from backend_plugin.core.protojson import decode_struct
from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.values import omit_empty

_PARTS: Final = ("requests", "limits")


def with_overrides(template: TaskTemplate, overrides: TaskNodeOverrides) -> TaskTemplate:
    """Return the task template with the overrides of its Flyte node; the same object if there are none."""
    if not overrides.ListFields():
        return template
    changed = TaskTemplate()
    changed.CopyFrom(template)
    for field, value in overrides.extended_resources.ListFields():
        getattr(changed.extended_resources, field.name).CopyFrom(value)
    is_rendered = _is_rendered(template)
    if overrides.pod_template.HasField("pod_spec"):
        _replace_pod(changed, overrides, is_rendered=is_rendered)
    if not is_rendered and (change := _CHANGES.get(changed.WhichOneof("target"))):
        change(changed, overrides)
    return changed


def _is_rendered(template: TaskTemplate) -> bool:
    """True if FlytePropeller rendered the pod, and so applied the overrides."""
    containers = get_mappings(decode_struct(template.k8s_pod.pod_spec), "containers")
    env = [each for container in containers for each in get_mappings(container, "env")]
    return any(each.get("name") == DECORATED for each in env)


def _replace_pod(template: TaskTemplate, overrides: TaskNodeOverrides, *, is_rendered: bool) -> None:
    # A spec that FlytePropeller rendered stays, because FlytePropeller has already applied the override.
    other = overrides.pod_template
    if not is_rendered:
        template.k8s_pod.pod_spec.CopyFrom(other.pod_spec)
    metadata = template.k8s_pod.metadata
    metadata.labels.update(other.metadata.labels)
    metadata.annotations.update(other.metadata.annotations)
    template.config[PRIMARY_KEY] = other.primary_container_name


def _change_container(template: TaskTemplate, overrides: TaskNodeOverrides) -> None:
    container = template.container
    container.image = overrides.container_image or container.image
    for part in _PARTS:
        overridden = _select_nonzero(getattr(overrides.resources, part))
        if not overridden:
            continue
        entries = getattr(container.resources, part)
        names = {each.name for each in overridden}
        others = [each for each in entries if each.name not in names]
        del entries[:]
        entries.extend([*others, *overridden])


def _change_pod(template: TaskTemplate, overrides: TaskNodeOverrides) -> None:
    pod = decode_struct(template.k8s_pod.pod_spec)
    name = template.config.get(PRIMARY_KEY, "")
    amounts = omit_empty({part: _read_amounts(getattr(overrides.resources, part)) for part in _PARTS})
    primary: list[Any] = [each for each in get_mappings(pod, "containers") if each.get("name") == name]
    for container in (*primary, *get_mappings(pod, "initContainers")):
        _change_resources(container, amounts)
    for container in primary if overrides.container_image else ():
        container["image"] = overrides.container_image
    template.k8s_pod.pod_spec.Clear()
    template.k8s_pod.pod_spec.update(pod)


def _change_resources(container: Any, amounts: Mapping[str, Mapping[str, str]]) -> None:
    if amounts:
        resources = get_mapping(container, "resources")
        changed = {part: {**get_mapping(resources, part), **more} for part, more in amounts.items()}
        container["resources"] = {**resources, **changed}


def _read_amounts(entries: Iterable[Any]) -> dict[str, str]:
    return {
        RESOURCE_NAMES[each.name]: each.value
        for each in _select_nonzero(entries)
        if each.name in RESOURCE_NAMES
    }


def _select_nonzero(entries: Iterable[Any]) -> list[Any]:
    """Return the resource entries except those with the amount zero, which Flyte treats as not specified."""
    return [each for each in entries if each.value.strip("+0.") or not each.value]


_CHANGES: Final = {"container": _change_container, "k8s_pod": _change_pod}
"""The functions that apply overrides to a task template, by the kind of its target."""

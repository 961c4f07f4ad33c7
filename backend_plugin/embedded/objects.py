"""Accessors for Kubernetes objects, and functions that return changed copies."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map, get_texts
from backend_plugin.core.values import JsonValue, Manifest

_PREREQUISITES: Final = tuple(filter(None, (each.prerequisite for each in DIALECTS.values())))
PREREQUISITES: Final = tuple(each.kind for each in _PREREQUISITES)
"""The kinds of prerequisites, the objects that a job requires, such as the TrainingRuntime of a TrainJob."""
RESOURCES: Final[Mapping[str, str]] = {
    **{name: f"{each.resource.plural}.{each.resource.group}" for name, each in DIALECTS.items()},
    **{each.kind: f"{each.plural}.{each.group}" for each in _PREREQUISITES},
    "Pod": "pods",
    "Service": "services",
    "Event": "events",
    "PodTemplate": "podtemplates",
    "Node": "nodes",
    "PodGroup": "podgroups.scheduling.x-k8s.io",
}
"""The resource name of each kind of object in the store, as in messages of the API server."""

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer that keeps a pod object until its operator has counted the end of the pod."""

_TERMINAL_PHASES: Final = ("Succeeded", "Failed")


class Key(NamedTuple):
    """The unique key of an object in the store. The namespace of a node is empty."""

    kind: str
    namespace: str
    name: str


def get_key(manifest: Manifest) -> Key:
    """Return the kind, namespace and name of an object."""
    metadata = get_mapping(manifest, "metadata")
    return Key(get_text(manifest, "kind"), get_text(metadata, "namespace"), get_text(metadata, "name"))


def get_uid(manifest: Manifest) -> str:
    """Return the uid of an object; empty before it is stored."""
    return get_text(manifest, "metadata", "uid")


def get_name(manifest: Manifest) -> str:
    """Return the name of an object."""
    return get_text(manifest, "metadata", "name")


def get_hostname(pod: Manifest) -> str:
    """Return the host name of a pod."""
    return get_text(pod, "spec", "hostname") or get_name(pod)


def get_owner_uid(manifest: Manifest) -> str:
    """Return the uid of the owner that controls an object, or an empty string."""
    owners = get_mappings(manifest, "metadata", "ownerReferences")
    return next((get_text(each, "uid") for each in owners if each.get("controller") is True), "")


def get_label(manifest: Manifest, label: str) -> str:
    """Return the value of a label, or an empty string."""
    return get_text_map(manifest, "metadata", "labels").get(label, "")


def get_annotation(manifest: Manifest, annotation: str) -> str:
    """Return the value of an annotation, or an empty string."""
    return get_text_map(manifest, "metadata", "annotations").get(annotation, "")


def get_phase(pod: Manifest) -> str:
    """Return the phase of a pod."""
    return get_text(pod, "status", "phase")


def get_node_name(pod: Manifest) -> str:
    """Return the node that a pod is bound to, or an empty string."""
    return get_text(pod, "spec", "nodeName")


def is_ended(pod: Manifest) -> bool:
    """True if a pod has succeeded or failed."""
    return get_phase(pod) in _TERMINAL_PHASES


def is_active(pod: Manifest) -> bool:
    """True if a pod has not ended and is not being deleted."""
    return not is_ended(pod) and not is_terminating(pod)


def has_started(pod: Manifest) -> bool:
    """True if the status of a pod contains container statuses."""
    return bool(get_mappings(pod, "status", "containerStatuses"))


def count_restarts(pod: Manifest) -> int:
    """Return the number of restarts of the containers of a pod."""
    status = get_mapping(pod, "status")
    containers = [*get_mappings(status, "initContainerStatuses"), *get_mappings(status, "containerStatuses")]
    return sum(get_int(each, "restartCount") or 0 for each in containers)


def is_terminating(manifest: Manifest) -> bool:
    """True if an object has a deletion timestamp."""
    return bool(get_mapping(manifest, "metadata").get("deletionTimestamp"))


def is_tracked(pod: Manifest) -> bool:
    """True if the finalizer `TRACKING` keeps the pod object until an operator has processed the pod's end."""
    return TRACKING in get_texts(pod, "metadata", "finalizers")


def with_section(manifest: Manifest, key: str, **fields: JsonValue) -> Manifest:
    """Return a copy of an object with these fields set in its top-level field `key`, such as `spec`."""
    return {**manifest, key: {**get_mapping(manifest, key), **fields}}


def with_metadata(manifest: Manifest, **fields: JsonValue) -> Manifest:
    """Return a copy of an object with these fields set in its metadata."""
    return with_section(manifest, "metadata", **fields)


def with_annotations(manifest: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """Return a copy of an object with these annotations added."""
    existing = get_text_map(manifest, "metadata", "annotations")
    return with_metadata(manifest, annotations={**existing, **annotations})


def format_time(moment: datetime) -> str:
    """Format a time as Kubernetes does, in UTC and without fractions of a second."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_event_body(component: str, reason: str, message: str, *, warning: bool = False) -> Manifest:
    """Return the type, reason, message and source of an event; `EventRecorder` adds the other fields."""
    return {
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "reportingComponent": component,
    }


def build_condition(kind: str, value: str, *, reason: str = "", message: str = "", now: datetime) -> Manifest:
    """Build a condition of a pod or a node. `value` is ``True``, ``False`` or ``Unknown``."""
    texts = {"reason": reason, "message": message}
    return {
        "type": kind,
        "status": value,
        **{key: value for key, value in texts.items() if value},
        "lastTransitionTime": format_time(now),
    }


def find_condition(conditions: Iterable[Manifest], kind: str) -> Manifest:
    """Return the condition of type `kind`, or an empty mapping if there is none."""
    return next((each for each in conditions if each.get("type") == kind), {})


def with_condition(manifest: Manifest, kind: str, value: str, now: datetime, **texts: str) -> Manifest:
    """Return a copy of an object with a new status condition, which replaces one of the same type.

    `texts` are the `reason` and the `message` of the condition; see `build_condition`.
    """
    condition = build_condition(kind, value, now=now, **texts)
    existing = get_mappings(manifest, "status", "conditions")
    return with_section(manifest, "status", conditions=merge_conditions(existing, [condition]))


def merge_conditions(existing: Iterable[Manifest], new: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return `existing` with the conditions in `new` added. A new condition replaces one of the same type.

    If the status of a condition does not change, its `lastTransitionTime` is kept.
    """
    by_type = {get_text(each, "type"): each for each in existing}
    for each in new:
        old = by_type.get(get_text(each, "type"), {})
        same = old.get("status") == each.get("status") and "lastTransitionTime" in old
        transition = {"lastTransitionTime": old["lastTransitionTime"]} if same else {}
        by_type[get_text(each, "type")] = {**each, **transition}
    return list(by_type.values())


def merge_patch(old: Manifest, patch: Manifest) -> Manifest:
    """Apply a JSON merge patch: null removes a field, mappings are merged, other values are replaced."""
    merged = {key: value for key, value in old.items() if patch.get(key, 0) is not None}
    for key, value in patch.items():
        if value is not None:
            merged[key] = merge_patch(get_mapping(old, key), value) if isinstance(value, Mapping) else value
    return merged

"""Kubernetes objects as values: what they are called, and copies of them with a change.

Lives here: names, metadata, conditions. Does not: which fields an object may have; see `admission`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import JsonValue, Manifest

RESOURCES: Final[Mapping[str, str]] = {
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "Pod": "pods",
    "Service": "services",
    "Event": "events",
    "PodTemplate": "podtemplates",
    "Node": "nodes",
    "PodGroup": "podgroups.scheduling.x-k8s.io",
}
"""Every kind that is kept, and what the API server calls it in its sentences."""

GONE_FOR_GOOD: Final = ("Succeeded", "Failed")
"""The phases of a pod that never change any more."""


class Key(NamedTuple):
    """What tells an object from the others that are there; a node's namespace is empty."""

    kind: str
    namespace: str
    name: str


def key_of(manifest: Manifest) -> Key:
    """Its key, as it says itself."""
    metadata = section(manifest, "metadata")
    return Key(text(manifest, "kind"), text(metadata, "namespace"), text(metadata, "name"))


def uid_of(manifest: Manifest) -> str:
    """Its uid; empty before it is stored."""
    return text(section(manifest, "metadata"), "uid")


def name_of(manifest: Manifest) -> str:
    """Its name."""
    return text(section(manifest, "metadata"), "name")


def owner_of(manifest: Manifest) -> str:
    """The uid of the object that controls it; empty without one."""
    owners = entries(section(manifest, "metadata"), "ownerReferences")
    return next((text(each, "uid") for each in owners if each.get("controller") is True), "")


def label_of(manifest: Manifest, label: str) -> str:
    """The value of its label; empty without one."""
    return texts(section(manifest, "metadata"), "labels").get(label, "")


def annotation_of(manifest: Manifest, annotation: str) -> str:
    """The value of its annotation; empty without one."""
    return texts(section(manifest, "metadata"), "annotations").get(annotation, "")


def phase_of(pod: Manifest) -> str:
    """A pod's phase."""
    return text(section(pod, "status"), "phase")


def node_of(pod: Manifest) -> str:
    """The node that a pod is bound to; empty when it is to none."""
    return text(section(pod, "spec"), "nodeName")


def is_ended(pod: Manifest) -> bool:
    """Whether a pod has come to its end."""
    return phase_of(pod) in GONE_FOR_GOOD


def has_begun(pod: Manifest) -> bool:
    """Whether the kubelet has said anything of a pod's containers."""
    return bool(entries(section(pod, "status"), "containerStatuses"))


def is_terminating(manifest: Manifest) -> bool:
    """Whether its deletion has been ordered."""
    return bool(section(manifest, "metadata").get("deletionTimestamp"))


def with_section(manifest: Manifest, key: str, **fields: JsonValue) -> Manifest:
    """The same with these fields in its section `key`."""
    return {**manifest, key: {**section(manifest, key), **fields}}


def with_metadata(manifest: Manifest, **fields: JsonValue) -> Manifest:
    """The same with these fields in its metadata."""
    return with_section(manifest, "metadata", **fields)


def with_annotations(manifest: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """The same with these annotations, too."""
    there = texts(section(manifest, "metadata"), "annotations")
    return with_metadata(manifest, annotations={**there, **annotations})


def stamp(moment: datetime) -> str:
    """A moment as Kubernetes writes it: to the second."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, value: str, *, reason: str, message: str, now: datetime) -> Manifest:
    """An entry of a pod's or a node's conditions; `value` is ``True``, ``False`` or ``Unknown``."""
    said = {"reason": reason, "message": message}
    return {
        "type": kind,
        "status": value,
        **{key: value for key, value in said.items() if value},
        "lastTransitionTime": stamp(now),
    }


def with_conditions(manifest: Manifest, *conditions: Manifest) -> Manifest:
    """The same with these conditions in its status, each in the place of the one of its type."""
    there = entries(section(manifest, "status"), "conditions")
    return with_section(manifest, "status", conditions=merged_conditions(there, conditions))


def merged_conditions(there: Iterable[Manifest], new: Iterable[Manifest]) -> Sequence[Manifest]:
    """`there` with `new` in place of those of the same type; since when is kept where the status is."""
    by_type = {text(each, "type"): each for each in there}
    for each in new:
        old = by_type.get(text(each, "type"), {})
        same = old.get("status") == each.get("status") and "lastTransitionTime" in old
        kept = {"lastTransitionTime": old["lastTransitionTime"]} if same else {}
        by_type[text(each, "type")] = {**each, **kept}
    return list(by_type.values())

"""What every object's metadata must be like.

Lives here: the rules that hold for all kinds. Does not: those of names, which each kind has its own of.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import names
from backend_plugin.embedded.admission.refusal import Cause, invalid, not_understood, required, too_long

ANNOTATIONS_BYTES: Final = 256 * 1024
_TEXTS: Final = ("labels", "annotations")
_FIELDS: Final = ("name", "generateName", "namespace", *_TEXTS, "finalizers", "ownerReferences")
_OF_SERVER: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def sent(manifest: Manifest) -> dict[str, Any]:
    """What a client may say in metadata, without what is empty; raises `Refused` where it cannot be read."""
    metadata = section(manifest, "metadata")
    found = {field: metadata[field] for field in _FIELDS if metadata.get(field)}
    for field in _TEXTS:
        _check_texts(manifest, field, found.get(field, {}))
    for field in ("finalizers", "ownerReferences"):
        if not isinstance(found.get(field, []), list):
            raise _unlike(manifest, field, "slice")
    for field in ("name", "namespace", "generateName"):
        if not isinstance(found.get(field, ""), str):
            raise _unlike(manifest, field, "string")
    return found


def kept(manifest: Manifest) -> dict[str, Any]:
    """The same with what only the server says."""
    metadata = section(manifest, "metadata")
    return {**sent(manifest), **{field: metadata[field] for field in _OF_SERVER if field in metadata}}


def causes(metadata: Mapping[str, Any], rule: Callable[[str], list[str]]) -> Iterator[Cause]:
    """What is wrong with metadata as `sent` returns it; `rule` is that of the kind's names."""
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    for wrong in rule(name) if name else ():
        yield invalid("metadata.name", name, wrong)
    namespace = metadata.get("namespace", "")
    if not namespace:
        yield required("metadata.namespace")
    for wrong in names.dns_label(namespace) if namespace else ():
        yield invalid("metadata.namespace", namespace, wrong)
    yield from _of_texts(metadata)
    for finalizer in metadata.get("finalizers", ()):
        for wrong in names.qualified(str(finalizer)):
            yield invalid("metadata.finalizers", str(finalizer), wrong)


def changes(old: Manifest, new: Mapping[str, Any]) -> Iterator[Cause]:
    """What of metadata may not be changed and is."""
    before = kept(old)
    for field in _IMMUTABLE:
        if new.get(field) != before.get(field):
            yield invalid(f"metadata.{field}", new.get(field), "field is immutable")


def _of_texts(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    for key, value in metadata.get("labels", {}).items():
        for wrong in names.qualified(key):
            yield invalid("metadata.labels", key, wrong)
        for wrong in names.label_value(value):
            yield invalid("metadata.labels", value, wrong)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        for wrong in names.qualified(key.lower()):
            yield invalid("metadata.annotations", key, wrong)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_BYTES:
        yield too_long("metadata.annotations", ANNOTATIONS_BYTES)


def _check_texts(manifest: Manifest, field: str, found: Any) -> None:
    if not isinstance(found, Mapping):
        raise _unlike(manifest, field, "map[string]string")
    if not all(isinstance(value, str) for value in found.values()):
        raise _unlike(manifest, field, "string")


def _unlike(manifest: Manifest, field: str, wanted: str) -> Exception:
    kind = text(manifest, "kind")
    return not_understood(
        f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal value into Go struct'
        f" field ObjectMeta.metadata.{field} of type {wanted}"
    )

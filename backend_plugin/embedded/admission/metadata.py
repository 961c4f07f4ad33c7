"""Validates the metadata of objects of every kind. The caller passes the naming rule of the kind."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

import msgspec

from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.pod_rules.field_errors import FieldError, build_invalid_error, build_required_error
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission.api_errors import build_bad_request

ANNOTATIONS_BYTES: Final = 256 * 1024


class _Owner(TypedDict, total=False):
    apiVersion: str | None
    kind: str | None
    name: str | None
    uid: str | None
    controller: bool | None
    blockOwnerDeletion: bool | None


class _ClientFields(TypedDict, total=False):
    """The metadata fields that a client may set.

    A field that is null counts as absent. A label value, annotation value or finalizer that is null counts
    as an empty string, and a null owner reference as one without fields.
    """

    name: str | None
    generateName: str | None
    namespace: str | None
    labels: dict[str, str | None] | None
    annotations: dict[str, str | None] | None
    finalizers: list[str | None] | None
    ownerReferences: list[_Owner | None] | None


# A job has no deletion fields, because its deletion is immediate.
_OF_SERVER: Final = ("uid", "resourceVersion", "generation", "creationTimestamp")
_IMMUTABLE: Final = ("name", "namespace", "uid", "creationTimestamp")
_OWNER_FIELDS: Final = {
    "apiVersion": "version must not be empty",
    **dict.fromkeys(("kind", "name", "uid"), "must not be empty"),
}
"""The required fields of an owner reference, with the error if one is empty."""

_NULL_REPLACEMENTS: Final[Mapping[str, Callable[[Any], object]]] = {
    **dict.fromkeys(("labels", "annotations"), lambda texts: {key: texts[key] or "" for key in texts}),
    "finalizers": lambda names: [name or "" for name in names],
    "ownerReferences": lambda owners: [
        {key: each for key, each in (owner or {}).items() if each is not None} for owner in owners
    ],
}
"""The functions that replace or remove the nulls inside a metadata field, by name of the field."""


def read_client_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the metadata fields that a client may set, without empty ones.

    Raises:
        RequestRejected: If a field has a wrong type.
    """
    metadata = manifest.get("metadata")
    try:
        fields: Any = msgspec.convert({} if metadata is None else metadata, _ClientFields)
    except msgspec.ValidationError as error:
        raise build_bad_request(f"the metadata of the object cannot be decoded: {error}") from error
    return {
        field: _NULL_REPLACEMENTS.get(field, str)(fields[field])
        for field in _ClientFields.__annotations__
        if fields.get(field)
    }


def read_stored_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the metadata fields that a client may set and those that only the API server sets."""
    metadata = get_mapping(manifest, "metadata")
    return {
        **read_client_fields(manifest),
        **{field: metadata[field] for field in _OF_SERVER if field in metadata},
    }


def check_metadata(metadata: Mapping[str, Any], rule: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield the errors in the metadata of an object. `rule` returns the errors in the name of the object."""
    name = metadata.get("name", "")
    if name:
        yield from check_text("metadata.name", name, rule)
    else:
        yield build_required_error("metadata.name", "name or generateName is required")
    namespace = metadata.get("namespace", "")
    if namespace:
        yield from check_text("metadata.namespace", namespace, name_rules.check_dns_label)
    else:
        yield build_required_error("metadata.namespace")
    yield from _check_text_maps(metadata)
    for finalizer in metadata.get("finalizers", ()):
        yield from check_text("metadata.finalizers", finalizer, name_rules.check_qualified_name)
    yield from _check_owners(metadata.get("ownerReferences", ()))


def check_text(path: str, text: str, rule: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield an error for each message that `rule` returns about `text`, the value of the field `path`."""
    return (build_invalid_error(path, text, wrong) for wrong in rule(text))


def check_immutable_fields(old: Manifest, new: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield an error for each immutable metadata field that differs between `old` and `new`."""
    before = read_stored_fields(old)
    for field in _IMMUTABLE:
        if new.get(field) != before.get(field):
            yield build_invalid_error(f"metadata.{field}", new.get(field), "field is immutable")


def _check_text_maps(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    for key, value in metadata.get("labels", {}).items():
        yield from check_text("metadata.labels", key, name_rules.check_qualified_name)
        yield from check_text("metadata.labels", value, name_rules.check_label_value)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        for wrong in name_rules.check_qualified_name(key.lower()):
            yield build_invalid_error("metadata.annotations", key, wrong)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_BYTES:
        yield build_invalid_error(
            "metadata.annotations", size, f"must have at most {ANNOTATIONS_BYTES} bytes"
        )


def _check_owners(owners: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    for owner in owners:
        for field, what in _OWNER_FIELDS.items():
            if not owner.get(field):
                yield build_invalid_error(f"metadata.ownerReferences.{field}", "", what)
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    for other in controllers[1:]:
        detail = 'Only one reference can have Controller set to true. Found "true" in references for'
        yield build_invalid_error(
            "metadata.ownerReferences", list(owners), f"{detail} {controllers[0]} and {other}"
        )

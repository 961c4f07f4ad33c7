"""Validates the metadata of objects of every kind. Each kind has its own rule for names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import name_rules
from backend_plugin.embedded.admission.api_errors import (
    FieldError,
    build_bad_request,
    build_invalid_error,
    build_required_error,
    build_too_long_error,
)

ANNOTATIONS_BYTES: Final = 256 * 1024
_OWNER: Final[Mapping[str, str]] = {
    **dict.fromkeys(("apiVersion", "kind", "name"), "string"),
    "uid": "types.UID",
    **dict.fromkeys(("controller", "blockOwnerDeletion"), "bool"),
}
# The fields and their Go types. Error messages contain the names of these types.
_FIELDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("name", "generateName", "namespace"), "string"),
    **dict.fromkeys(("labels", "annotations"), "map[string]string"),
    "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference",
}
_ZEROS: Final[Mapping[str, Any]] = {"string": "", "types.UID": "", "bool": False, "v1.OwnerReference": {}}
# The order matters, because a Python bool is also an int.
_JSON: Final[Mapping[str, type | tuple[type, ...]]] = {
    "bool": bool,
    "number": (int, float),
    "string": str,
    "array": (list, tuple),
    "object": Mapping,
}
_WANTED: Final[Mapping[str, str]] = {"bool": "bool", "string": "string", "types.UID": "string"}
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


def read_client_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the metadata fields that a client may set, without empty ones.

    Raises:
        RequestRejected: If a field has a wrong type.
    """
    metadata = {} if manifest.get("metadata") is None else manifest["metadata"]
    if not isinstance(metadata, Mapping):
        raise _build_decoding_error(manifest, metadata, "Go value", "v1.ObjectMeta")
    found = {}
    for field, kind in _FIELDS.items():
        value = _decode_value(manifest, metadata.get(field), kind, f"ObjectMeta.{field}")
        found.update({field: value} if value else {})
    return found


def read_stored_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the metadata fields of a request, and those that only the API server sets."""
    metadata = get_mapping(manifest, "metadata")
    return {
        **read_client_fields(manifest),
        **{field: metadata[field] for field in _OF_SERVER if field in metadata},
    }


def check_metadata(metadata: Mapping[str, Any], rule: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield the errors in metadata.

    Args:
        metadata: The result of `sent`.
        rule: Returns the errors in a name of this kind.
    """
    name = metadata.get("name", "")
    if not name:
        yield build_required_error("metadata.name", "name or generateName is required")
    for wrong in rule(name) if name else ():
        yield build_invalid_error("metadata.name", name, wrong)
    namespace = metadata.get("namespace", "")
    if not namespace:
        yield build_required_error("metadata.namespace")
    for wrong in name_rules.check_dns_label(namespace) if namespace else ():
        yield build_invalid_error("metadata.namespace", namespace, wrong)
    yield from _check_text_maps(metadata)
    for finalizer in metadata.get("finalizers", ()):
        for wrong in name_rules.check_qualified_name(finalizer):
            yield build_invalid_error("metadata.finalizers", finalizer, wrong)
    yield from _check_owners(metadata.get("ownerReferences", ()))


def check_immutable_fields(old: Manifest, new: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield an error for each immutable field that differs."""
    before = read_stored_fields(old)
    for field in _IMMUTABLE:
        if new.get(field) != before.get(field):
            yield build_invalid_error(f"metadata.{field}", new.get(field), "field is immutable")


def _check_text_maps(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    for key, value in metadata.get("labels", {}).items():
        for wrong in name_rules.check_qualified_name(key):
            yield build_invalid_error("metadata.labels", key, wrong)
        for wrong in name_rules.check_label_value(value):
            yield build_invalid_error("metadata.labels", value, wrong)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        for wrong in name_rules.check_qualified_name(key.lower()):
            yield build_invalid_error("metadata.annotations", key, wrong)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_BYTES:
        yield build_too_long_error("metadata.annotations", ANNOTATIONS_BYTES)


def _check_owners(owners: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                what = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield build_invalid_error(f"metadata.ownerReferences.{field}", "", what)
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    for other in controllers[1:]:
        detail = 'Only one reference can have Controller set to true. Found "true" in references for'
        yield build_invalid_error(
            "metadata.ownerReferences", list(owners), f"{detail} {controllers[0]} and {other}"
        )


def _decode_value(manifest: Manifest, value: Any, kind: str, path: str) -> Any:
    """Return a value decoded as its Go type, without unknown fields. Null becomes the zero value."""
    if value is None:
        return _ZEROS.get(kind)
    if kind.startswith("[]") and isinstance(value, list):
        return [_decode_value(manifest, item, kind.removeprefix("[]"), path) for item in value]
    if kind == "map[string]string" and isinstance(value, Mapping):
        return {key: _decode_value(manifest, item, "string", path) for key, item in value.items()}
    if kind == "v1.OwnerReference" and isinstance(value, Mapping):
        fields = {field: of for field, of in _OWNER.items() if value.get(field) is not None}
        at = "OwnerReference.ownerReferences"
        return {
            field: _decode_value(manifest, value[field], of, f"{at}.{field}") for field, of in fields.items()
        }
    if _WANTED.get(kind) != _get_json_type(value):
        raise _build_decoding_error(manifest, value, f"Go struct field {path}", kind)
    return value


def _get_json_type(value: Any) -> str:
    return next(name for name, kind in _JSON.items() if isinstance(value, kind))


def _build_decoding_error(manifest: Manifest, value: Any, into: str, wanted: str) -> RequestRejected:
    kind = get_text(manifest, "kind")
    return build_bad_request(
        f'{kind} in version "v1" cannot be handled as a {kind}:'
        f" json: cannot unmarshal {_get_json_type(value)} into {into} of type {wanted}"
    )

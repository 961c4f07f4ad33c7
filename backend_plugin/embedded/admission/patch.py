"""Merge patches as RFC 7386 defines them. `OperatorEmulation.admit_update` validates a patched job."""

from collections.abc import Mapping

from backend_plugin.core.values import JsonValue, Manifest


def merge_patch(old: Manifest, patch: Manifest) -> Manifest:
    """Return the patched object: null removes a field, mappings are merged, other values are replaced."""
    merged = {key: value for key, value in old.items() if patch.get(key, 0) is not None}
    for key, value in patch.items():
        if value is not None:
            merged[key] = _merge_value(old.get(key), value)
    return merged


def _merge_value(old: JsonValue, new: JsonValue) -> JsonValue:
    if not isinstance(new, Mapping):
        return new
    return merge_patch(old if isinstance(old, Mapping) else {}, new)

"""The types of JSON values and manifests, and functions for parts of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
Manifest: TypeAlias = Mapping[str, JsonValue]
"""A Kubernetes object or a part of it. Manifests are immutable; a change requires a copy."""
Fields: TypeAlias = Mapping[str, Any]
"""The fields of an object, such as a pod's spec or a container, whose types have been checked."""

_Value = TypeVar("_Value")


def omit_empty(fields: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return the fields without those whose value is None, false, zero or empty."""
    return {key: value for key, value in fields.items() if value}


def pick_fields(fields: Mapping[str, _Value], keys: Iterable[str]) -> dict[str, _Value]:
    """Return the fields with these keys, in the order of the keys, without values that are false or empty."""
    return {key: fields[key] for key in keys if fields.get(key)}


def join_first(names: Sequence[str], most: int) -> str:
    """Return the first `most` names and the number of others, such as ``node-0, node-1 and 6 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def list_repeated(values: Sequence[Any]) -> list[Any]:
    """Return the values that occur several times, sorted."""
    if len({*values}) == len(values):
        return []
    return sorted(value for value, times in Counter(values).items() if times > 1)

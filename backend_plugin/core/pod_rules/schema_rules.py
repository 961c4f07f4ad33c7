"""The rules of the OpenAPI schema of pods beyond types: required fields, and unique entries of lists."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_duplicate_error,
    build_required_error,
)
from backend_plugin.core.pod_schema import LIST_KEYS
from backend_plugin.core.schema_check import get_types
from backend_plugin.core.values import Fields


def check_object(value: Fields, kind: str, path: str) -> Iterator[FieldError]:
    """Yield an error for each missing required field and repeated list entry in an object of type `kind`."""
    required, parts = _get_rules(kind)
    for name in sorted(required - value.keys()):
        yield build_required_error(f"{path}.{name}")
    for name in value:
        if name in parts:
            check = _check_list if parts[name].startswith("[") else check_object
            yield from check(value[name], parts[name].strip("[]"), f"{path}.{name}")


def _check_list(items: Sequence[Fields], kind: str, path: str) -> Iterator[FieldError]:
    required, parts = _get_rules(kind)
    nested = frozenset(parts)
    for index, item in enumerate(items):
        if not required <= item.keys() or not nested.isdisjoint(item):  # Few variables have nested fields.
            yield from check_object(item, kind, f"{path}[{index}]")
    if keys := LIST_KEYS.get(kind):
        taken = set[tuple[Any, ...]]()
        for index, item in enumerate(items):
            key = tuple([item.get(name) for name in keys])
            if key in taken:
                yield build_duplicate_error(f"{path}[{index}]", dict(zip(keys, key, strict=True)))
            taken.add(key)


@cache
def _get_rules(kind: str) -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the required fields of a type, and the types of those fields within which there are rules."""
    fields = get_types()[kind]
    parts = {name: each.rstrip("!*") for name, each in fields.items()}
    required = frozenset(name for name, each in fields.items() if each.endswith("*"))
    return required, {name: part for name, part in parts.items() if _has_rules(part.strip("[]"))}


def _has_rules(kind: str) -> bool:
    return kind in get_types() and (kind in LIST_KEYS or any(_get_rules(kind)))

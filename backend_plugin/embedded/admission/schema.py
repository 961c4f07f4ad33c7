"""Applies the schema of a custom resource as the API server does: pruning, defaults and types."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_duplicate_error,
    build_invalid_error,
    build_required_error,
    build_type_error,
)
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.quantity import InvalidQuantity, parse
from backend_plugin.core.schema_check import parse_types

_SCALARS: Final[Mapping[str, str]] = {
    "string": "string",
    "bool": "boolean",
    "int32": "integer",
    "int64": "integer",
}
# The order matters, because a Python bool is also an int.
_NAMES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
}
_INT_OR_STRING: Final = ("intstr", "quantity")
_BITS: Final = {"int32": 31, "int64": 63}
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_AMOUNT: Final = re.compile(rf"(?=.{{0,200}}\Z){_QUANTITY}")


@dataclass(frozen=True, kw_only=True)
class ResourceSchema:
    """The schema of a custom resource, with types in the format of `core.pod_schema`."""

    parts: str
    """The types of the custom resource, in addition to those of `core.pod_schema`."""
    required: Mapping[str, str]
    """The required fields of each type."""
    keys: Mapping[str, Mapping[str, str]]
    """For each type and each of its list fields: the fields by which two entries of the list must differ."""
    defaults: Mapping[str, Mapping[str, str | bool]]
    """The default values of optional fields."""
    newer: Mapping[str, frozenset[str]]
    """Fields in `core.pod_schema` that the custom resource definition does not contain."""

    @cached_property
    def _fields(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {
                field: kind.removesuffix("!")
                for field, kind in fields.items()
                if field not in self.newer.get(name, ())
            }
            for name, fields in parse_types(PARTS + self.parts).items()
        }

    def prune(self, value: Any, kind: str) -> Any:
        """Return the value with defaults, and without unknown fields and nulls. Nulls in lists remain."""
        if kind.startswith("[") and isinstance(value, list):
            return [self.prune(item, kind[1:-1]) for item in value]
        if not isinstance(value, Mapping):
            return int(value) if isinstance(value, float) and value.is_integer() else value
        present = {key: item for key, item in value.items() if item is not None}
        if kind.startswith("{"):
            return {key: self.prune(item, kind[1:-1]) for key, item in present.items()}
        if kind not in self._fields:
            return value
        defaults = self.defaults.get(kind, {})
        known = {
            key: self.prune(item, self._fields[kind][key])
            for key, item in present.items()
            if key in self._fields[kind]
        }
        return {**known, **{key: default for key, default in defaults.items() if key not in known}}

    def check_types(self, value: Any, kind: str, path: str) -> Iterator[FieldError]:
        """Yield an error for each value of a wrong type and each missing field."""
        found = _get_json_type(value)
        if kind in _SCALARS:
            yield from [] if found == _SCALARS[kind] else [build_type_error(path, _SCALARS[kind], found)]
        elif kind in _INT_OR_STRING:
            yield from _check_int_or_string(value, kind, path)
        elif kind.startswith("["):
            yield from self._check_list(value, kind[1:-1], path)
        elif found != "object":
            yield build_type_error(path, "object", found)
        elif kind.startswith("{"):
            for key, item in value.items():
                yield from self.check_types(item, kind[1:-1], f"{path}.{key}")
        else:
            yield from self._check_object(value, kind, path)

    def check_list_keys(self, value: Any, kind: str, path: str) -> Iterator[FieldError]:
        """Yield an error for list entries with equal keys. The paths contain the keys of maps in brackets."""
        if kind.startswith("[") and isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.check_list_keys(item, kind[1:-1], f"{path}[{index}]")
        elif kind.startswith("{") and isinstance(value, Mapping):
            for key, item in value.items():
                yield from self.check_list_keys(item, kind[1:-1], f"{path}[{key}]")
        elif kind in self._fields and isinstance(value, Mapping):
            for key, item in value.items():
                if keys := self.keys.get(kind, {}).get(key):
                    yield from _check_keys(item, keys.split(), f"{path}.{key}")
                yield from self.check_list_keys(item, self._fields[kind][key], f"{path}.{key}")

    def check_decodable(self, value: Any, kind: str, path: str) -> Iterator[str]:
        """Yield an error for each value that passes the schema but that Go cannot decode."""
        if kind in _BITS and not -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]:
            yield f"json: cannot unmarshal number {value} into Go struct field {path} of type {kind}"
        elif kind == "quantity" and isinstance(value, str):
            yield from _check_quantity(value)
        elif kind.endswith(("]", "}")):
            for item in value if kind.startswith("[") else value.values():
                yield from self.check_decodable(item, kind[1:-1], path)
        elif kind in self._fields:
            for key, item in value.items():
                yield from self.check_decodable(item, self._fields[kind][key], f"{path}.{key}")

    def _check_list(self, value: Any, kind: str, path: str) -> Iterator[FieldError]:
        if _get_json_type(value) != "array":
            yield build_type_error(path, "array", _get_json_type(value))
            return
        for index, item in enumerate(value):
            yield from self.check_types(item, kind, f"{path}[{index}]")

    def _check_object(self, value: Mapping[str, Any], kind: str, path: str) -> Iterator[FieldError]:
        for key in self.required.get(kind, "").split():
            if key not in value:
                yield build_required_error(f"{path}.{key}")
        for key, item in value.items():
            yield from self.check_types(item, self._fields[kind][key], f"{path}.{key}")


def _get_json_type(value: Any) -> str:
    """Return the API server's name of a JSON type. To Go, an integer of more than 64 bits is a number."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "number"
    return next((name for kind, name in _NAMES.items() if isinstance(value, kind)), "object")


def _check_int_or_string(value: Any, kind: str, path: str) -> Iterator[FieldError]:
    if isinstance(value, str):
        if kind == "quantity" and _AMOUNT.match(value) is None:
            yield build_invalid_error(path, value, "is not a quantity")
    elif _get_json_type(value) != "integer":
        yield build_type_error(path, "integer or string", _get_json_type(value))


def _check_keys(items: Any, keys: list[str], path: str) -> Iterator[FieldError]:
    """Yield an error for the second entry with a key only, as the API server does."""
    times: dict[str, int] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, Mapping):
            yield build_invalid_error(
                f"{path}[{index}]", item, "must be an object for an array of list-type map"
            )
            return
        key = {name: item[name] for name in keys if name in item}
        times[str(key)] = times.get(str(key), 0) + 1
        if times[str(key)] == 2:
            yield build_duplicate_error(f"{path}[{index}]", key)


def _check_quantity(value: str) -> Iterator[str]:
    try:
        parse(value)
    except InvalidQuantity:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        yield f"quantities must match the regular expression '{pattern}'"

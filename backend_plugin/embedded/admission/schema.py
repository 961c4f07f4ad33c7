"""Applies the schema of a custom resource as the API server does: pruning, defaults and types."""

import re
from collections.abc import Callable, Iterator, Mapping
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
from backend_plugin.core.schema_check import parse_types
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission.api_errors import build_bad_request
from kfpytorch_common.quantity import InvalidQuantity, parse

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
    """The required fields of each type, separated by spaces."""
    keys: Mapping[str, Mapping[str, str]]
    """The key fields of each list, separated by spaces, by type and field. No two entries have equal keys."""
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

    def prune_object(
        self, manifest: Manifest, api_version: str, kind: str, read: Callable[[Manifest], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return an object with its pruned spec and the metadata that `read` returns.

        Raises:
            RequestRejected: If its API version or its kind is wrong, or if `read` raises it.
        """
        given = manifest.get("apiVersion"), manifest.get("kind")
        if given != (api_version, kind):
            object_type = f"{given[0]}, Kind={given[1]}"
            raise build_bad_request(f"the object's type ({object_type}) is not {api_version}, Kind={kind}")
        pruned = {"apiVersion": api_version, "kind": kind, "metadata": read(manifest)}
        if manifest.get("spec") is not None:
            pruned["spec"] = self.prune(manifest["spec"], f"{kind}Spec")
        return pruned

    def prune(self, value: Any, kind: str) -> Any:
        """Return a value of the type `kind` with defaults, and without unknown fields and nulls.

        Nulls in lists remain. A float without a fraction becomes an int.
        """
        if isinstance(value, Mapping):
            return self._prune_mapping(value, kind)
        if isinstance(value, list):
            return [self.prune(item, item_kind) for _, item, item_kind in self._iter_items(value, kind)]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def _prune_mapping(self, value: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
        if not kind.startswith("{") and kind not in self._fields:
            return value
        present = {key: item for key, item in value.items() if item is not None}
        pruned = {
            key: self.prune(item, item_kind) for key, item, item_kind in self._iter_items(present, kind)
        }
        for key, default in self.defaults.get(kind, {}).items():
            pruned.setdefault(key, default)
        return pruned

    def _iter_items(self, value: Any, kind: str) -> Iterator[tuple[Any, Any, str]]:
        """Yield the key (or index), value and type of each list item, map item or known object field."""
        if isinstance(value, Mapping):
            kinds = dict.fromkeys(value, kind[1:-1]) if kind.startswith("{") else self._fields.get(kind, {})
            yield from ((key, item, kinds[key]) for key, item in value.items() if key in kinds)
        elif isinstance(value, list):
            item_kind = kind[1:-1] if kind.startswith("[") else ""
            yield from ((index, item, item_kind) for index, item in enumerate(value))

    def check_types(self, value: Any, kind: str, path: str) -> Iterator[FieldError]:
        """Yield an error for each value of a wrong type and each missing required field."""
        found = _get_json_type(value)
        expected = _SCALARS.get(kind) or ("array" if kind.startswith("[") else "object")
        if kind in _INT_OR_STRING:
            yield from _check_int_or_string(value, kind, path)
        elif found != expected:
            yield build_type_error(path, expected, found)
        else:
            for key in self.required.get(kind, "").split():
                if key not in value:
                    yield build_required_error(f"{path}.{key}")
            for key, item, item_kind in self._iter_items(value, kind):
                yield from self.check_types(
                    item, item_kind, path + (f"[{key}]" if found == "array" else f".{key}")
                )

    def check_list_keys(self, value: Any, kind: str, path: str) -> Iterator[FieldError]:
        """Yield an error for each key that occurs twice in a list; check all lists in `value`.

        The attribute `keys` contains the fields that form a list key. `kind` is the type of `value`, and
        `path` its path. In the path of an error, the key of a map is in brackets.
        """
        list_keys = self.keys.get(kind, {})
        for key, item, item_kind in self._iter_items(value, kind):
            below = f"{path}.{key}" if kind in self._fields else f"{path}[{key}]"
            if key in list_keys:
                yield from _check_keys(item, list_keys[key].split(), below)
            yield from self.check_list_keys(item, item_kind, below)

    def check_decodable(self, value: Any, kind: str, path: str) -> Iterator[str]:
        """Yield the Go decoder's error for each value that has the right type, but that Go cannot decode."""
        if kind in _BITS and not -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]:
            yield f"json: cannot unmarshal number {value} into Go struct field {path} of type {kind}"
        elif kind == "quantity":
            yield from _check_quantity(str(value))
        for key, item, item_kind in self._iter_items(value, kind):
            below = f"{path}.{key}" if kind in self._fields else path
            yield from self.check_decodable(item, item_kind, below)


def _get_json_type(value: Any) -> str:
    """Return the API server's name for the JSON type of a value; an integer of over 64 bits is a `number`."""
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
    """Yield an error for the first non-object entry, and for each combination of `keys` that occurs twice."""
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

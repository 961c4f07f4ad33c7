"""Applies the schema of a custom resource as the API server does: pruning, defaults and types.

The tables are in `job_types`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from backend_plugin.core.pod_types import PARTS
from backend_plugin.core.quantity import NotAQuantity, parse
from backend_plugin.core.shapes import declared
from backend_plugin.embedded.admission.job_types import DEFAULTS, JOB_PARTS, KEYS, NEWER, REQUIRED
from backend_plugin.embedded.admission.refusal import Cause, duplicate, invalid, required, wrong_type

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


@cache
def _parts() -> Mapping[str, Mapping[str, str]]:
    return {
        name: {field: kind.removesuffix("!") for field, kind in fields.items() if field not in _newer(name)}
        for name, fields in declared(PARTS + JOB_PARTS).items()
    }


def _newer(part: str) -> frozenset[str]:
    return NEWER.get(part, frozenset())


def pruned(value: Any, kind: str) -> Any:
    """Return the value with defaults, and without unknown fields and nulls. Nulls in lists remain."""
    if kind.startswith("[") and isinstance(value, list):
        return [pruned(item, kind[1:-1]) for item in value]
    if not isinstance(value, Mapping):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    said = {key: item for key, item in value.items() if item is not None}
    if kind.startswith("{"):
        return {key: pruned(item, kind[1:-1]) for key, item in said.items()}
    if kind not in _parts():
        return value
    defaults = DEFAULTS.get(kind, {})
    known = {key: pruned(item, _parts()[kind][key]) for key, item in said.items() if key in _parts()[kind]}
    return {**known, **{key: default for key, default in defaults.items() if key not in known}}


def causes(value: Any, kind: str, path: str) -> Iterator[Cause]:
    """Yield an error for each value of a wrong type and each missing field."""
    found = _type(value)
    if kind in _SCALARS:
        yield from [] if found == _SCALARS[kind] else [wrong_type(path, _SCALARS[kind], found)]
    elif kind in _INT_OR_STRING:
        yield from _of_int_or_string(value, kind, path)
    elif kind.startswith("["):
        yield from _of_list(value, kind[1:-1], path)
    elif found != "object":
        yield wrong_type(path, "object", found)
    elif kind.startswith("{"):
        for key, item in value.items():
            yield from causes(item, kind[1:-1], f"{path}.{key}")
    else:
        yield from _of_object(value, kind, path)


def duplicates(value: Any, kind: str, path: str) -> Iterator[Cause]:
    """Yield an error for list entries with equal keys. The paths contain the keys of maps in brackets."""
    if kind.startswith("[") and isinstance(value, list):
        for index, item in enumerate(value):
            yield from duplicates(item, kind[1:-1], f"{path}[{index}]")
    elif kind.startswith("{") and isinstance(value, Mapping):
        for key, item in value.items():
            yield from duplicates(item, kind[1:-1], f"{path}[{key}]")
    elif kind in _parts() and isinstance(value, Mapping):
        for key, item in value.items():
            if keys := KEYS.get(kind, {}).get(key):
                yield from _of_keys(item, keys.split(), f"{path}.{key}")
            yield from duplicates(item, _parts()[kind][key], f"{path}.{key}")


def unreadable(value: Any, kind: str, path: str) -> Iterator[str]:
    """Yield an error for each value that passes the schema but that Go cannot decode."""
    if kind in _BITS and not -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]:
        yield f"json: cannot unmarshal number {value} into Go struct field {path} of type {kind}"
    elif kind == "quantity" and isinstance(value, str):
        yield from _of_quantity(value)
    elif kind.endswith(("]", "}")):
        for item in value if kind.startswith("[") else value.values():
            yield from unreadable(item, kind[1:-1], path)
    elif kind in _parts():
        for key, item in value.items():
            yield from unreadable(item, _parts()[kind][key], f"{path}.{key}")


def _type(value: Any) -> str:
    """Return the API server's name of a JSON type. To Go, an integer of more than 64 bits is a number."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "number"
    return next((name for kind, name in _NAMES.items() if isinstance(value, kind)), "object")


def _of_int_or_string(value: Any, kind: str, path: str) -> Iterator[Cause]:
    if isinstance(value, str):
        if kind == "quantity" and _AMOUNT.match(value) is None:
            yield invalid(path, value, f"{path} in body should match '{_QUANTITY}'")
    elif _type(value) != "integer":
        yield invalid("<nil>", "", f'"{path}" must validate at least one schema (anyOf)')
        yield wrong_type(path, "integer", _type(value))


def _of_list(value: Any, kind: str, path: str) -> Iterator[Cause]:
    if _type(value) != "array":
        yield wrong_type(path, "array", _type(value))
        return
    for index, item in enumerate(value):
        yield from causes(item, kind, f"{path}[{index}]")


def _of_object(value: Mapping[str, Any], kind: str, path: str) -> Iterator[Cause]:
    for key in REQUIRED.get(kind, "").split():
        if key not in value:
            yield required(f"{path}.{key}")
    for key, item in value.items():
        yield from causes(item, _parts()[kind][key], f"{path}.{key}")


def _of_keys(items: Any, keys: list[str], path: str) -> Iterator[Cause]:
    """Yield an error for the second entry with a key only, as the API server does."""
    times: dict[str, int] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, Mapping):
            yield invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return
        key = {name: item[name] for name in keys if name in item}
        times[str(key)] = times.get(str(key), 0) + 1
        if times[str(key)] == 2:
            yield duplicate(f"{path}[{index}]", key)


def _of_quantity(value: str) -> Iterator[str]:
    try:
        parse(value)
    except NotAQuantity:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        yield f"quantities must match the regular expression '{pattern}'"

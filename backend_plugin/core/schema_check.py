"""Type checks and normalization of pod parts that an author or an admin wrote.

A type (`kind`) is the name of a type of `pod_schema` or of a scalar, ``[type]`` for a list, or ``{type}`` for
a mapping. The API server validates the values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from backend_plugin.core.errors import MOST_PROBLEMS, Problem
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.quantity import InvalidQuantity, parse

QUANTITY: Final = "quantity"

# Message and remedy for an invalid scalar, by its type.
_WRONG: Final = {
    "string": ("is not text", "write it in quotes"),
    "bool": ("is neither true nor false", "write true or false"),
    "int32": ("is not a whole number of 32 bits", "write a whole number, without quotes"),
    "int64": ("is not a whole number of 64 bits", "write a whole number, without quotes"),
    "intstr": ("is neither a whole number of 32 bits nor a name", "write a number, or a name in quotes"),
    QUANTITY: ("is not a quantity", "write it as Kubernetes does, such as 2, 500m or 16Gi"),
}
_NEGATIVE: Final = ("is negative", "write 0 or more")
# Values of these types, of lists and of mappings are omitted if they are empty, unless the type ends in `!`.
_OMITTED_ZEROS: Final = ("string", "bool", "int32", "int64")


def convert_value(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    """Return the value as Kubernetes would serialize it, and its problems.

    The value is None if there is a problem. Fields that are not in `pod_schema` are omitted, as in Flyte's
    plugin.
    """
    problems: list[Problem] = []
    converted = _convert(value, kind, path, problems)
    return (None if problems else converted), problems


def iter_unknown_fields(value: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that are not in `pod_schema`; the value must be valid for its type."""
    if kind.startswith("["):
        for index, item in enumerate(value):
            yield from iter_unknown_fields(item, kind[1:-1], f"{path}[{index}]")
    elif kind in get_types():
        for key, item in value.items():
            known = get_types()[kind].get(key)
            at = f"{path}.{key}".removeprefix(".")
            yield from [at] if known is None else iter_unknown_fields(item, known.removesuffix("!"), at)


def format_amount(value: Any) -> str:
    """Return the text of a quantity, which may be a number in JSON."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.9f}".rstrip("0").rstrip(".") if is_number else ""


def normalize_json(value: Any) -> Any:
    """Return the JSON without nulls and with whole numbers as int; a Struct stores all numbers as floats."""
    if isinstance(value, str):  # Most values are strings, and the check for a mapping is slow.
        return value
    if isinstance(value, Mapping):
        return {key: normalize_json(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [normalize_json(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def get_types() -> Mapping[str, Mapping[str, str]]:
    """Return the fields and field types of each type in `pod_schema`."""
    return parse_types(PARTS)


def parse_types(paragraphs: str) -> Mapping[str, Mapping[str, str]]:
    """Parse a declaration of types in the format of `pod_schema.PARTS`."""
    types: dict[str, dict[str, str]] = {}
    for paragraph in paragraphs.replace("\n  ", " ").splitlines():
        name, *fields = paragraph.split()
        types[name] = {}
        for field in fields:
            key, _, kind = field.partition(":")
            types[name].update({key: kind} if kind else types[key[1:]])
    return types


def _convert(value: Any, kind: str, path: str, problems: list[Problem]) -> Any:
    kind = kind.removesuffix("!")
    if kind == QUANTITY:
        return _convert_quantity(value, path, problems)
    if kind in _WRONG:
        if not _is_scalar(value, kind):
            _add_problem(problems, path, value, *_WRONG[kind])
        return value
    if kind.startswith("["):
        return _convert_list(value, kind[1:-1], path, problems)
    return _convert_object(value, kind, path, problems)


def _is_scalar(value: Any, kind: str) -> bool:
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if isinstance(value, str):
        return kind in ("string", "intstr")
    most = 2 ** (63 if kind == "int64" else 31)
    return kind != "string" and isinstance(value, int) and -most <= value < most


def _convert_quantity(value: Any, path: str, problems: list[Problem]) -> str:
    try:
        amount = parse(format_amount(value))
    except InvalidQuantity:
        _add_problem(problems, path, value, *_WRONG[QUANTITY])
        return ""
    if amount.nano < 0:
        _add_problem(problems, path, value, *_NEGATIVE)
    return amount.text


def _convert_list(value: Any, kind: str, path: str, problems: list[Problem]) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        _add_problem(problems, path, value, "is not a list", "write a list")
        return []
    return [_convert(item, kind, f"{path}[{index}]", problems) for index, item in enumerate(value)]


def _convert_object(value: Any, kind: str, path: str, problems: list[Problem]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        _add_problem(problems, path, value, "is not an object", "write names with values")
        return {}
    if kind.startswith("{"):
        return {
            str(key): _convert(value[key], kind[1:-1], f"{path}.{key}", problems)
            for key in sorted(value, key=str)
        }
    fields: dict[str, Any] = {}
    for key, part in get_types()[kind].items():
        if key in value:
            item = _convert(value[key], part, f"{path}.{key}", problems)
            if item or not part.endswith(("]", "}", *_OMITTED_ZEROS)):
                fields[key] = item
        elif part == QUANTITY:
            fields[key] = "0"
    return fields


def _add_problem(problems: list[Problem], *parts: Any) -> None:
    if len(problems) < MOST_PROBLEMS:
        problems.append(build_problem(*parts))

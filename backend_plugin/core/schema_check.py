"""Type checks and normalization of pod parts that an author or an admin wrote.

An argument `kind` is the name of a type in `pod_schema` or of a scalar, ``[type]`` for a list, or ``{type}``
for a mapping. This module checks only the types; the API server validates the values.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from backend_plugin.core.errors import MOST_PROBLEMS, Problem
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.protojson import build_problem
from kfpytorch_common.quantity import InvalidQuantity, Quantity, parse

QUANTITY: Final = "quantity"
AMOUNTS: Final = "{quantity}"


class _CanonicalQuantity(str):
    """A quantity as canonical text, which msgspec decodes with `_decode_amount`."""

    __slots__ = ()


_INT32: Final[Any] = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_SCALARS: Final[Mapping[str, Any]] = {
    "string": str,
    "bool": bool,
    "int32": _INT32,
    "int64": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "intstr": _INT32 | str,
    QUANTITY: _CanonicalQuantity,
}
_ZEROS: Final[Mapping[str, Any]] = {"string": "", "bool": False, "int32": 0, "int64": 0}
# Message and remedy for an invalid scalar, by its type.
_WRONG: Final = {
    "string": ("is not text", "write it in quotes"),
    "bool": ("is neither true nor false", "write true or false"),
    "int32": ("is not a whole number of 32 bits", "write a whole number, without quotes"),
    "int64": ("is not a whole number of 64 bits", "write a whole number, without quotes"),
    "intstr": ("is neither a whole number of 32 bits nor a name", "write a number, or a name in quotes"),
    QUANTITY: ("is not a quantity", "write it as Kubernetes does, such as 2, 500m or 16Gi"),
}


def prepare_types() -> None:
    """Build all types; call it before several threads use this module.

    msgspec completes a type at its first use. If two threads do that at the same time, the process crashes.
    """
    for kind in get_types():
        _convert({}, kind, "")


def convert_value(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    """Return the value as Kubernetes would serialize it, and its problems.

    The value is None if there is a problem. Fields that are not in `pod_schema` are omitted, as in Flyte's
    plugin.
    """
    converted, wrong = _convert(value, kind, path)
    return None if wrong else msgspec.to_builtins(converted, enc_hook=str), wrong


def check_value(value: Any, kind: str, path: str) -> list[Problem]:
    """Return a problem for each field within `value` whose value has a wrong type."""
    return _convert(value, kind, path)[1]


def _convert(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    try:
        return msgspec.convert(value, _build_type(kind), dec_hook=_decode_amount), []
    except msgspec.ValidationError:  # msgspec also raises it for errors of the hook.
        return None, list(islice(_check_parts(value, kind, path), MOST_PROBLEMS))


def iter_unknown_fields(value: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yield the path of each field of `value` that its type `kind`, a name in `pod_schema`, does not have."""
    if kind.startswith("["):
        for index, item in enumerate(value):
            yield from iter_unknown_fields(item, kind[1:-1], f"{path}[{index}]")
    elif kind in get_types():
        for key, item in value.items():
            known = get_types()[kind].get(key)
            at = f"{path}.{key}".removeprefix(".")
            yield from [at] if known is None else iter_unknown_fields(item, known.rstrip("!*"), at)


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
    if isinstance(value, (dict, Mapping)):
        return {key: normalize_json(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [normalize_json(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse_amount(value: Any) -> Quantity:
    """Return the quantity of a resource, which may be a number in JSON.

    Raises `InvalidQuantity` if the value is not a quantity, or is negative.
    """
    amount = parse(format_amount(value))
    if amount.nano < 0:
        raise InvalidQuantity(value)
    return amount


def parse_amounts(amounts: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return the parsed quantities of a valid mapping such as `requests` or `limits`, by resource name."""
    return {name: parse(format_amount(amount)) for name, amount in amounts.items()}


def _decode_amount(_: type, value: Any) -> _CanonicalQuantity:
    return _CanonicalQuantity(parse_amount(value).text)


@cache
def get_types() -> Mapping[str, Mapping[str, str]]:
    """Return the types in `pod_schema` by name; each maps the names of its fields to their types."""
    return parse_types(PARTS)


def parse_types(paragraphs: str) -> Mapping[str, Mapping[str, str]]:
    """Return the declared types: for each type name, the type of each field by the name of the field.

    `paragraphs` has the format of `pod_schema.PARTS`, such as ``ContainerPort name:string hostPort:int32``.
    """
    types: dict[str, dict[str, str]] = {}
    for paragraph in paragraphs.replace("\n  ", " ").splitlines():
        name, *fields = paragraph.split()
        types[name] = {}
        for field in fields:
            key, _, kind = field.partition(":")
            types[name].update({key: kind} if kind else types[key[1:]])
    return types


@cache
def _build_type(kind: str) -> Any:
    """Return the msgspec type that validates values of a type such as ``Container`` or ``[Container]``.

    msgspec validates much faster than `_check_parts`, which finds the problems of an invalid value.
    """
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind.startswith("["):
        return list[_build_type(kind[1:-1])]  # type: ignore[misc]
    if kind.startswith("{"):
        return dict[str, _build_type(kind[1:-1])]  # type: ignore[misc]
    return msgspec.defstruct(
        kind, [(name, *_build_field(each)) for name, each in get_types()[kind].items()], omit_defaults=True
    )


def _build_field(kind: str) -> tuple[Any, Any]:
    """Return the msgspec type of a field of the type `kind`, and its default, which serialization omits."""
    kind = kind.removesuffix("*")
    if kind == QUANTITY:
        return _CanonicalQuantity, msgspec.field(default_factory=lambda: _CanonicalQuantity("0"))
    if kind in _ZEROS:
        return _build_type(kind), _ZEROS[kind]
    if kind.endswith(("]", "}")):
        return _build_type(kind), msgspec.field(default_factory=list if kind.endswith("]") else dict)
    return _build_type(kind.removesuffix("!")) | msgspec.UnsetType, msgspec.UNSET


def _check_parts(value: Any, kind: str, path: str) -> Iterator[Problem]:
    if kind in _SCALARS:
        yield from _check_scalar(value, kind, path)
    elif kind.startswith("["):
        yield from _check_list(value, kind[1:-1], path)
    else:
        yield from _check_object(value, kind, path)


def _check_scalar(value: Any, kind: str, path: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, _SCALARS[kind], dec_hook=_decode_amount)
    except msgspec.ValidationError:
        wrong = _WRONG[kind]
        if kind == QUANTITY:
            with suppress(InvalidQuantity):
                parse(format_amount(value))
                wrong = ("is negative", "write 0 or more")
        yield build_problem(path, value, *wrong)


def _check_object(value: Any, kind: str, path: str) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield build_problem(path, value, "is not an object", "write names with values")
        return
    is_map = kind.startswith("{")
    kinds = dict.fromkeys(sorted(value, key=str), kind[1:-1]) if is_map else get_types()[kind]
    for key, part in kinds.items():
        if key in value:
            yield from _check_parts(value[key], part.rstrip("!*"), f"{path}.{key}")


def _check_list(value: Any, kind: str, path: str) -> Iterator[Problem]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        yield build_problem(path, value, "is not a list", "write a list")
        return
    for index, item in enumerate(value):
        yield from _check_parts(item, kind, f"{path}[{index}]")

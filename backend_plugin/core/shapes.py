"""Type checks and normalization of pod parts that an author or an admin wrote.

A type is a type of `pod_types`, a scalar, ``[type]`` or ``{type}``. Only the API server validates the values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from backend_plugin.core.errors import MOST_PROBLEMS, Problem
from backend_plugin.core.pod_types import PARTS
from backend_plugin.core.protojson import shown
from backend_plugin.core.quantity import NotAQuantity, parse

QUANTITY: Final = "quantity"
AMOUNTS: Final = "{quantity}"


class _Amount:
    """A quantity in its canonical text. Not a dataclass, because msgspec would convert its fields."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _int(bits: int) -> Any:
    most = 2 ** (bits - 1)
    return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]


_SCALARS: Final[Mapping[str, Any]] = {
    "string": str,
    "bool": bool,
    "int32": _int(32),
    "int64": _int(64),
    "intstr": _int(32) | str,
    QUANTITY: _Amount,
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
_NEGATIVE: Final = ("is negative", "write 0 or more")


def prepare() -> None:
    """Build all types; call it before several threads use this module.

    msgspec completes a type at its first use. If two threads do that at the same time, the process crashes.
    """
    for kind in parts():
        _converted({}, kind, "")


def read(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    """Return the value as Kubernetes would serialize it, and its problems.

    The value is None if there is a problem. Fields that are not in `pod_types` are omitted, as in Flyte's
    plugin.
    """
    found, wrong = _converted(value, kind, path)
    return None if wrong else msgspec.to_builtins(found, enc_hook=_text), wrong


def problems(value: Any, kind: str, path: str) -> list[Problem]:
    """Return a problem for each part of a value that does not have its type."""
    return _converted(value, kind, path)[1]


def _converted(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    try:
        return msgspec.convert(value, _type(kind), dec_hook=_amount), []
    except msgspec.ValidationError:  # msgspec also converts errors of the hook, as for a quantity.
        return None, list(islice(_problems(value, kind, path), MOST_PROBLEMS))


def unknown(value: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that are not in `pod_types`; the value must have its type."""
    if kind.startswith("["):
        for index, item in enumerate(value):
            yield from unknown(item, kind[1:-1], f"{path}[{index}]")
    elif kind in parts():
        for key, item in value.items():
            known = parts()[kind].get(key)
            at = f"{path}.{key}" if path else key
            yield from [at] if known is None else unknown(item, known.removesuffix("!"), at)


def amount_text(value: Any) -> str:
    """Return the text of a quantity, which may be a number in JSON."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.9f}".rstrip("0").rstrip(".") if is_number else ""


def whole_numbers(value: Any) -> Any:
    """Return the JSON without nulls and with whole numbers as int; a Struct stores all numbers as floats."""
    if isinstance(value, str):  # Most values are strings, and the check for a mapping is slow.
        return value
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _amount(_: type, value: Any) -> _Amount:
    amount = parse(amount_text(value))
    if amount.nano < 0:
        raise NotAQuantity(value)
    return _Amount(amount.text)


def _text(amount: _Amount) -> str:
    return amount.text


@cache
def parts() -> Mapping[str, Mapping[str, str]]:
    """Return the fields and field types of each type in `pod_types`."""
    return declared(PARTS)


def declared(paragraphs: str) -> Mapping[str, Mapping[str, str]]:
    """Parse a declaration of types in the format of `pod_types.PARTS`."""
    found: dict[str, dict[str, str]] = {}
    for paragraph in paragraphs.replace("\n  ", " ").splitlines():
        name, *fields = paragraph.split()
        found[name] = {}
        for field in fields:
            key, _, kind = field.partition(":")
            found[name].update({key: kind} if kind else found[key[1:]])
    return found


@cache
def _type(kind: str) -> Any:
    """Return the type for msgspec, which validates much faster than `_problems`."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind.startswith("["):
        return list[_type(kind[1:-1])]  # type: ignore[misc]
    if kind.startswith("{"):
        return dict[str, _type(kind[1:-1])]  # type: ignore[misc]
    return msgspec.defstruct(
        kind, [(name, *_field(each)) for name, each in parts()[kind].items()], omit_defaults=True
    )


def _field(kind: str) -> tuple[Any, Any]:
    """Return the msgspec type and the default of a field; serialization omits defaults."""
    if kind == QUANTITY:
        return _Amount, msgspec.field(default_factory=lambda: _Amount("0"))
    if kind in _ZEROS:
        return _type(kind), _ZEROS[kind]
    if kind.endswith(("]", "}")):
        return _type(kind), msgspec.field(default_factory=list if kind.endswith("]") else dict)
    return _type(kind.removesuffix("!")) | msgspec.UnsetType, msgspec.UNSET


def _problems(value: Any, kind: str, path: str) -> Iterator[Problem]:
    if kind in _SCALARS:
        yield from _scalar_problems(value, kind, path)
    elif kind.startswith("["):
        yield from _list_problems(value, kind[1:-1], path)
    else:
        yield from _object_problems(value, kind, path)


def _scalar_problems(value: Any, kind: str, path: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, _SCALARS[kind], dec_hook=_amount)
    except msgspec.ValidationError:
        is_negative = kind == QUANTITY and _is_quantity(value)
        yield _problem(path, value, *(_NEGATIVE if is_negative else _WRONG[kind]))


def _is_quantity(value: Any) -> bool:
    try:
        parse(amount_text(value))
    except NotAQuantity:
        return False
    return True


def _object_problems(value: Any, kind: str, path: str) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _problem(path, value, "is not an object", "write names with values")
        return
    every = kind[1:-1] if kind.startswith("{") else None
    for key in sorted(value, key=str) if every else parts()[kind]:
        if key in value:
            yield from _problems(value[key], every or parts()[kind][key].removesuffix("!"), f"{path}.{key}")


def _list_problems(value: Any, kind: str, path: str) -> Iterator[Problem]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        yield _problem(path, value, "is not a list", "write a list")
        return
    for index, item in enumerate(value):
        yield from _problems(item, kind, f"{path}[{index}]")


def _problem(path: str, value: Any, message: str, remedy: str) -> Problem:
    return Problem(field=path, value=shown(value), message=message, remedy=remedy)

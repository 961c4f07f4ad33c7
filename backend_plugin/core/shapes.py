"""What we must be able to rely on before we look into a part of a pod that somebody else wrote.

Lives here: whether a value is of its type, and how Kubernetes would write it. Does not: whether it is good;
the API server knows that. A type is a part of `pod_types`, a scalar, or ``[type]`` or ``{type}``.
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
    """A quantity, as Kubernetes would print it; no dataclass, which msgspec would look into."""

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
# What is wrong with a scalar, and the remedy.
_WRONG: Final = {
    "string": ("is not text", "write it in quotes"),
    "bool": ("is neither true nor false", "write true or false"),
    "int32": ("is not a whole number of 32 bits", "write a whole number, without quotes"),
    "int64": ("is not a whole number of 64 bits", "write a whole number, without quotes"),
    "intstr": ("is neither a whole number of 32 bits nor a name", "write a number, or a name in quotes"),
    QUANTITY: ("is not a quantity", "write it as Kubernetes does, such as 2, 500m or 16Gi"),
}
_NEGATIVE: Final = ("is negative", "write 0 or more")


def read(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    """The value as Kubernetes would write it, and what is wrong with it; None with any problem.

    Fields that `pod_types` does not know are left out, as Flyte's own plugin does it.
    """
    found, wrong = _converted(value, kind, path)
    return None if wrong else msgspec.to_builtins(found, enc_hook=_text), wrong


def problems(value: Any, kind: str, path: str) -> list[Problem]:
    """Where a value is not of its type."""
    return _converted(value, kind, path)[1]


def _converted(value: Any, kind: str, path: str) -> tuple[Any, list[Problem]]:
    try:
        return msgspec.convert(value, _type(kind), dec_hook=_amount), []
    except msgspec.ValidationError:  # Of a quantity, too: what the hook raises becomes one.
        return None, list(islice(_problems(value, kind, path), MOST_PROBLEMS))


def unknown(value: Any, kind: str, path: str = "") -> Iterator[str]:
    """The fields of a value of its type that `pod_types` does not know, as paths."""
    if kind.startswith("["):
        for index, item in enumerate(value):
            yield from unknown(item, kind[1:-1], f"{path}[{index}]")
    elif kind in parts():
        for key, item in value.items():
            known = parts()[kind].get(key)
            at = f"{path}.{key}" if path else key
            yield from [at] if known is None else unknown(item, known.removesuffix("!"), at)


def amount_text(value: Any) -> str:
    """The text of a quantity, which JSON may hold as a number."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.9f}".rstrip("0").rstrip(".") if is_number else ""


def whole_numbers(value: Any) -> Any:
    """The same JSON without nulls, whole numbers as such: those of a Struct are all doubles."""
    if isinstance(value, str):  # Most are, and whether one is a mapping takes long to ask.
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
    """The fields of each part of a pod with their types."""
    return declared(PARTS)


def declared(paragraphs: str) -> Mapping[str, Mapping[str, str]]:
    """The same of any text that is written as that of `pod_types`."""
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
    """The same as a type that msgspec checks, much faster than problems are found."""
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
    """The type of a field, and what it is when nobody says it; zeros of the second kind are left out."""
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

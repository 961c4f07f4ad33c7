"""Readers: functions that return the valid form of one value of a config, or raise `InvalidValue`."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import index
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar

from flytekit import ImageSpec

from flytekitplugins.kfpytorch.problems import (
    ConfigProblem,
    InvalidValue,
    add_prefix,
    build_invalid_value,
    require_no_problems,
)
from kfpytorch_common import labels

E = TypeVar("E", bound=Enum)
Reader: TypeAlias = Callable[[object], object]

# Counts are transmitted as int32 (flyteidl's kubeflow protos, the operator's Go types).
INT32_MAX: Final = 2**31 - 1


def find_problems(field: str, reader: Reader, value: object) -> list[ConfigProblem]:
    """Return the problems of `value` in the field `field`; an empty list if `reader` accepts it."""
    try:
        reader(value)
    except InvalidValue as refusal:
        return [*add_prefix(field, refusal.problems)]
    return []


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """True for a sequence other than text and bytes."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def build_check_reader(is_valid: Callable[[object], bool], remedy: str) -> Reader:
    """Return a function that returns a valid value unchanged and raises `InvalidValue` for any other.

    `remedy` is the part of the error message that describes a valid value.
    """

    def read(value: object) -> object:
        if is_valid(value):
            return value
        raise build_invalid_value(value, remedy)

    return read


def build_object_name_reader(kind: str) -> Reader:
    """Return a function that returns a valid name of a Kubernetes object, and rejects other values.

    `kind` is the phrase for the kind of object in the error message, such as ``a runtime``.
    """
    return build_check_reader(
        lambda value: isinstance(value, str) and labels.is_subdomain(value),
        f"must be the name of {kind}: {labels.SUBDOMAIN}",
    )


def build_list_reader(read_item: Reader, remedy: str) -> Reader:
    """Return a function that returns a list unchanged if `read_item` raises no error for any item.

    For any other value, the function raises `InvalidValue`. `remedy` is the message for a value that is no
    list.
    """

    def read(value: object) -> object:
        if not is_list(value):
            raise build_invalid_value(value, remedy)
        require_no_problems(
            problem
            for place, item in enumerate(value)
            for problem in find_problems(f"[{place}]", read_item, item)
        )
        return value

    return read


def build_mapping_reader(check: Callable[[Any, Any], Iterable[ConfigProblem]], remedy: str) -> Reader:
    """Return a function that returns a dict unchanged if its items have no problems.

    For any other value, the function raises `InvalidValue`. `check` returns the problems of a key and its
    value. `remedy` is the message for a value that is no dict.
    """

    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            raise build_invalid_value(value, remedy)
        require_no_problems(
            problem for key, item in value.items() for problem in add_prefix(f"[{key!r}]", check(key, item))
        )
        return value

    return read


def build_count_reader(low: int) -> Reader:
    """Return a function that returns an integer of at least `low` and raises `InvalidValue` for other values.

    The function also rejects bools and integers that do not fit into an int32.
    """

    def read(value: object) -> int:
        try:
            number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
        except TypeError:
            number = None
        if number is None or number < low:
            raise build_invalid_value(value, f"must be a whole number of at least {low}")
        if number > INT32_MAX:
            raise build_invalid_value(value, f"must be at most {INT32_MAX} (it is sent as int32)")
        return number

    return read


read_count: Final = build_count_reader(low=0)
read_positive: Final = build_count_reader(low=1)


def read_flag(value: object) -> bool:
    """Convert True, False, 1, 0 or None to a bool. Text is invalid, because ``"false"`` would be true."""
    if value is None or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise build_invalid_value(value, "must be True or False")


read_name: Final = build_check_reader(
    lambda value: isinstance(value, str) and bool(value.strip()), "must be a name as text"
)
# 0 seconds are invalid, because torch's agent raises an AssertionError for it.
read_seconds: Final = build_check_reader(
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf,
    "must be a number of seconds above 0",
)
read_text: Final = build_check_reader(lambda value: isinstance(value, str), "must be text")
read_int: Final = build_check_reader(
    lambda value: isinstance(value, int) and not isinstance(value, bool), "must be a whole number"
)
read_image: Final = build_check_reader(
    lambda value: isinstance(value, (str, ImageSpec)), "must be the name of an image or an ImageSpec"
)
read_priority_class: Final = build_object_name_reader("a PriorityClass")


def build_choice_reader(*known: str) -> Reader:
    """Return a function that returns a word in `known` unchanged, and raises `InvalidValue` otherwise."""
    return build_check_reader(
        lambda value: isinstance(value, str) and value in known,
        f"must be {' or '.join(map(repr, known))}",
    )


def build_enum_reader(cls: type[E], aliases: Mapping[str, E]) -> Reader:
    """Return a function that converts the name of a member of an enum to the member.

    The name may have any case and any separators. The function also accepts a member. `aliases` contains
    further names, such as those of Kubernetes, in lower case and without separators.
    """
    names = {_strip_non_letters(item.name): item for item in cls} | dict(aliases)

    def read(value: object) -> E:
        if isinstance(value, cls):
            return value
        name = _strip_non_letters(value).removeprefix(cls.__name__.lower()) if isinstance(value, str) else ""
        if name in names:
            return names[name]
        choices = ", ".join(f"{cls.__name__}.{item.name}" for item in cls)
        raise build_invalid_value(value, f"must be one of {choices}, or the name as text")

    return read


def _strip_non_letters(text: str) -> str:
    return re.sub(r"[^a-z]+", "", text.lower())

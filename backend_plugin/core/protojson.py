"""Converts the JSON in a Struct to a protobuf message, and lists all problems of the JSON.

The rules are those of protobuf's JSON mapping, and unknown keys are ignored as in Flyte. `json_format` parses
each value separately, because it stops at the first error. Its option to ignore unknown keys would also
ignore unknown enum names.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeGuard

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value

from backend_plugin.core.errors import Problem
from backend_plugin.core.values import JsonValue, Manifest

_SHOWN_CHARACTERS: Final = 80
_INT32: Final = 2**31
# Errors of the parser: OverflowError for infinity as an enum, SystemError for half of a surrogate pair.
_UNPARSED: Final = (ParseError, OverflowError, SystemError)
_STRUCT: Final = Struct.DESCRIPTOR.full_name
_SMALL: Final = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
_LARGE: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_FLOATS: Final = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
# Message and remedy for an invalid value, by the type of its field.
_WRONG: Final = {
    **dict.fromkeys(_SMALL, ("is not a whole number of 32 bits", "write a whole number")),
    **dict.fromkeys(_LARGE, ("is not a whole number of 64 bits", "write a whole number")),
    **dict.fromkeys(_FLOATS, ("is not a number", "write a number")),
    FieldDescriptor.CPPTYPE_BOOL: ("is neither true nor false", "write true or false"),
    FieldDescriptor.CPPTYPE_ENUM: ("is not one of its values", "write one of {names}"),
    FieldDescriptor.CPPTYPE_STRING: ("is not text", "write a string"),
    FieldDescriptor.CPPTYPE_MESSAGE: ("is not an object", "write {{...}} with text as keys"),
}


def decode_struct(struct: Struct) -> dict[str, JsonValue]:
    """Convert a Struct to plain JSON values with sorted keys. All numbers are floats, as in the Struct."""
    fields = struct.fields
    # Look up each key: the items view of a protobuf map is slow. Most values are strings.
    return {key: (value := fields[key]).string_value or _decode_value(value) for key in sorted(fields)}


def _decode_value(value: Value) -> JsonValue:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return decode_struct(value.struct_value)
    if kind == "list_value":
        return [item.string_value or _decode_value(item) for item in value.list_value.values]
    if kind == "number_value":
        return value.number_value
    if kind == "bool_value":
        return value.bool_value
    # A string is empty here, because the callers convert other strings. A value of another kind is null.
    return "" if kind == "string_value" else None


def format_value(value: object) -> str:
    """Return a value as JSON text; more than 80 characters are truncated to 80, the last of them ``…``."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def build_problem(path: str, value: object, message: str, remedy: str) -> Problem:
    """Return a problem of the value at `path`; the problem shows the value as JSON."""
    return Problem(field=path, value=format_value(value), message=message, remedy=remedy)


def select_problems(*checks: tuple[bool, str, object, str, str]) -> Iterator[Problem]:
    """Yield a problem for each check (is_wrong, path, value, message, remedy) whose `is_wrong` is true."""
    for is_wrong, path, value, message, remedy in checks:
        if is_wrong:
            yield build_problem(path, value, message, remedy)


def check_choice(value: str, allowed: Collection[str], path: str) -> Iterator[Problem]:
    """Yield a problem if the value at `path` is not one of `allowed`."""
    if value not in allowed:
        yield build_problem(path, value, "is not one of its values", f"write one of {', '.join(allowed)}")


def parse_message(value: Manifest, message: Message, path: str, problems: list[Problem]) -> None:
    """Read `value` into `message` and add a problem, with a path below `path`, for each invalid field."""
    known, names = _describe_fields(message.DESCRIPTOR), set()
    for key, item in value.items():
        if (field := known.get(key)) is None or item is None:
            continue  # A null means that the field is not set, as in protobuf.
        if field.name in names:
            text, remedy = "is set twice, in camel and in snake case", "leave one of the two out"
            problems.append(build_problem(f"{path}.{key}", item, text, remedy))
            continue
        names.add(field.name)
        plain = _convert_simple(item, field)
        if plain is not None:
            setattr(message, field.name, plain)
        else:
            _parse_field(item, field, message, f"{path}.{key}", problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """The properties of a field that parsing needs; reading them from the descriptor each time is slow."""

    name: str
    cpp_type: int
    simple_type: int
    """The protobuf type of the field, a constant of `FieldDescriptor`; 0 for a repeated field."""
    part_type: type[dict[str, JsonValue]] | type[list[JsonValue]] | None
    """The JSON type of a value whose fields are parsed one by one; None to parse the value as a whole."""
    numbers: Mapping[str, int]
    """The number of each name of an enum; empty for a field of another type."""


@lru_cache(maxsize=64)
def _describe_fields(descriptor: Descriptor) -> Mapping[str, _Field]:
    return {
        name: _describe_field(field) for field in descriptor.fields for name in (field.name, field.json_name)
    }


def _describe_field(field: FieldDescriptor) -> _Field:
    kind, values = field.message_type, field.enum_type
    # The newest protobuf versions deprecate `label`, and the oldest ones do not have `is_repeated`.
    descriptor: Any = field
    flag = getattr(descriptor, "is_repeated", None)
    repeated = descriptor.label == FieldDescriptor.LABEL_REPEATED if flag is None else flag
    has_parts = kind is not None and kind.full_name != _STRUCT and not kind.GetOptions().map_entry
    numbers = {} if values is None else {value.name: value.number for value in values.values}
    return _Field(
        name=field.name,
        cpp_type=field.cpp_type,
        simple_type=0 if repeated else field.type,
        part_type=(list if repeated else dict) if has_parts else None,
        numbers=numbers,
    )


def _parse_field(
    item: JsonValue, field: _Field, message: Message, path: str, problems: list[Problem]
) -> None:
    if field.part_type is dict and isinstance(item, dict):
        part = getattr(message, field.name)
        part.SetInParent()
        parse_message(item, part, path, problems)
    elif field.part_type is list and _is_object_list(item):
        _parse_objects(item, getattr(message, field.name), path, problems)
    else:
        try:
            ParseDict({field.name: item}, message)
        except _UNPARSED:
            message.ClearField(field.name)
            problems.append(_type_problem(item, field, path))


def _parse_objects(items: Sequence[Manifest], parts: Any, path: str, problems: list[Problem]) -> None:
    for index, item in enumerate(items):
        before = len(problems)
        parse_message(item, parts.add(), f"{path}[{index}]", problems)
        if len(problems) > before:
            del parts[-1]


def _is_object_list(item: JsonValue) -> TypeGuard[Sequence[Manifest]]:
    return isinstance(item, list) and all(isinstance(part, dict) for part in item)


def _convert_simple(item: JsonValue, field: _Field) -> str | int | None:
    """Convert a common value without protobuf's slow parser; return None for a value that needs it."""
    kind = field.simple_type
    if isinstance(item, str):
        # Text that is not ASCII may contain half of a surrogate pair, which only the parser detects.
        text = item if kind == FieldDescriptor.TYPE_STRING and item.isascii() else None
        return field.numbers.get(item) if kind == FieldDescriptor.TYPE_ENUM else text
    if isinstance(item, float) and kind == FieldDescriptor.TYPE_INT32:
        return int(item) if -_INT32 <= item < _INT32 and item.is_integer() else None
    return None


def _type_problem(item: JsonValue, field: _Field, path: str) -> Problem:
    message, remedy = _WRONG[field.cpp_type]
    return build_problem(path, item, message, remedy.format(names=", ".join(field.numbers)))

"""Turns valid requests into invalid ones, as a hostile or broken client would send them.

All changes derive from the random generator, so that a failure can be reproduced.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from kubernetes_messages import BYTES
from kubernetes_messages import field as encode_field

Mutate = Callable[[Message, random.Random], bytes]

TEXTS: Final = (
    "",
    "a\nb\r\0c",
    "../../../../etc/passwd",
    "file:///etc/passwd",
    "file://host/etc/passwd",
    "simplecache::s3://bucket/x",
    "http://169.254.169.254/latest/meta-data",
    "s3://user:secret@bucket/prefix",
    "s3://bucket/../other",
    "kube-system",
    "UPPER.case_under",
    "{{ .input }}",
    "\u202e\ufeff\U0001f600",
    "9" * 400,
    "x" * 64,
)
HUGE: Final = "y" * 100_000
INTEGERS: Final = (0, 1, -1, 127, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
DOUBLES: Final = (0.0, -1.0, 0.5, 1e308, 1e-320, float("inf"), float("-inf"), float("nan"), 2.0**53 + 2)
# The depth that protobuf still parses; `bottomless` exceeds it.
DEPTH = 25


def _field(number: int, content: bytes) -> bytes:
    return encode_field(number, BYTES, content)


# ---- bytes


def flipped(message: Message, dice: random.Random) -> bytes:
    data = bytearray(message.SerializeToString())
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def spliced(message: Message, dice: random.Random) -> bytes:
    """Cut the message at a random place, and append a random part of it."""
    data = message.SerializeToString()
    begin, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[: dice.randrange(len(data) + 1)] + data[begin:end]


def noise(message: Message, dice: random.Random) -> bytes:
    return dice.randbytes(dice.choice((0, 1, 10, 1000, 100_000)))


def doubled(message: Message, dice: random.Random) -> bytes:
    """Repeat all fields: the last value of a single field counts, lists and maps grow."""
    return message.SerializeToString() * dice.choice((2, 3, 8))


def bottomless(message: Message, dice: random.Random) -> bytes:
    """Add a deeply nested list to the `custom` field of the template."""
    value = _field(3, b"deep")
    for _ in range(dice.choice((90, 1_000))):
        value = _field(6, _field(1, value))
    template, custom = 2, 5
    entry = _field(1, b"masterReplicas") + _field(2, value)
    return message.SerializeToString() + _field(template, _field(custom, _field(1, entry)))


# ---- fields


def changed(message: Message, dice: random.Random) -> bytes:
    """Drop, repeat or change one to five random fields at any depth."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        places = list(_places(copy))
        if places:
            owner, changing = dice.choice(places)
            _change(owner, changing, dice)
    return bytes(copy.SerializeToString())


MUTATIONS: Final[tuple[Mutate, ...]] = (*[changed] * 4, flipped, spliced, noise, doubled, bottomless)


def mutated(message: Message, dice: random.Random) -> bytes:
    """Apply a random mutation."""
    return dice.choice(MUTATIONS)(message, dice)


def _places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Yield every field of the message and of its nested messages, set or not."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None or (not field.is_repeated and not message.HasField(field.name)):
            continue
        held = getattr(message, field.name)
        if _is_map(field):
            held = held.values() if field.message_type.fields_by_name["value"].message_type else ()
        for each in held if field.is_repeated else (held,):
            yield from _places(each)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _change(owner: Message, field: FieldDescriptor, dice: random.Random) -> None:
    held = getattr(owner, field.name)
    if dice.random() < 0.25:
        owner.ClearField(field.name)
    elif isinstance(owner, struct_pb2.Value):
        owner.CopyFrom(_value(dice))
    elif _is_map(field):
        _set_map_value(held, field.message_type.fields_by_name["value"], dice)
    elif field.is_repeated:
        _extend(held, field, dice)
    elif field.message_type is not None:
        held.MergeFrom(_message(field, dice))
    else:
        setattr(owner, field.name, _scalar(field, dice))


def _set_map_value(held: Any, field: FieldDescriptor, dice: random.Random) -> None:
    key = dice.choice(TEXTS)
    if field.message_type is not None:
        held[key].MergeFrom(_message(field, dice))
    else:
        held[key] = _scalar(field, dice)


def _extend(held: Any, field: FieldDescriptor, dice: random.Random) -> None:
    kept = list(held)[:10]
    for _ in range(dice.choice((1, 2, 100))):
        if field.message_type is not None:
            held.add().CopyFrom(dice.choice(kept) if kept and dice.random() < 0.7 else _message(field, dice))
        else:
            held.append(_scalar(field, dice))


def _message(field: FieldDescriptor, dice: random.Random) -> Message:
    """Return a message of the type of this field, empty or with random values."""
    made = field.message_type._concrete_class()
    if isinstance(made, struct_pb2.Value):
        return _value(dice)
    for inner in made.DESCRIPTOR.fields:
        if inner.message_type is None and not inner.is_repeated and dice.random() < 0.5:
            setattr(made, inner.name, _scalar(inner, dice))
    return made


_RANGES: Final = {
    FieldDescriptor.CPPTYPE_UINT32: range(2**32),
    FieldDescriptor.CPPTYPE_UINT64: range(2**32),
    FieldDescriptor.CPPTYPE_INT64: range(-(2**63), 2**63),
}


def _scalar(field: FieldDescriptor, dice: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = HUGE if dice.random() < 0.02 else dice.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return dice.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return dice.choice(DOUBLES)
        case kind:
            valid = _RANGES.get(kind, range(-(2**31), 2**31))
            return dice.choice([number for number in INTEGERS if number in valid])


def _value(dice: random.Random) -> struct_pb2.Value:
    """Return a random value, including values that JSON does not allow."""
    made = struct_pb2.Value()
    match dice.randrange(6):
        case 0 | 1 | 2:
            return _leaf(dice)
        case 3:
            made.list_value.values.extend([_leaf(dice)] * dice.choice((0, 1, 1000)))
        case 4:
            made.struct_value.fields[dice.choice(TEXTS)].CopyFrom(_leaf(dice))
        case _:
            inner = made
            for _ in range(dice.choice((3, DEPTH))):
                is_object = dice.random() < 0.5
                inner = inner.struct_value.fields["spec"] if is_object else inner.list_value.values.add()
            inner.string_value = "deep"
    return made


def _leaf(dice: random.Random) -> struct_pb2.Value:
    return dice.choice(
        (
            struct_pb2.Value(string_value=dice.choice(TEXTS)),
            struct_pb2.Value(number_value=dice.choice(DOUBLES)),
            struct_pb2.Value(bool_value=True),
            struct_pb2.Value(null_value=struct_pb2.NULL_VALUE),
        )
    )

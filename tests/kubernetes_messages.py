"""Encoder of Kubernetes objects from JSON to the protobuf format of the API server.

Our messages define the known fields. All other fields become one unknown field of the same length as in JSON.
"""

import json
from datetime import datetime

from kfpytorch_idl.kubernetes.envelope_pb2 import Status, TypeMeta, Unknown, WatchEvent
from kfpytorch_idl.kubernetes.pods_pb2 import ContainerState, OwnerReference, Pod, PodCondition, PodList, Time

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
KINDS = {"Pod": Pod, "PodList": PodList, "Status": Status}
# Fields that are bytes in our messages and are parsed later.
TIMES = (
    *("creationTimestamp", "deletionTimestamp", "startTime"),
    *("lastTransitionTime", "startedAt", "finishedAt"),
)
MESSAGES = {
    "typeMeta": TypeMeta,
    "ownerReferences": OwnerReference,
    "conditions": PodCondition,
    **dict.fromkeys(("state", "lastState"), ContainerState),
    **dict.fromkeys(TIMES, Time),
}
UNKNOWN = 1_000
VARINT, BYTES = 0, 2


def wrapped(kind, manifest):
    type_meta = {"typeMeta": {"kind": kind, "apiVersion": "v1"}}
    content = encoded(KINDS[kind].DESCRIPTOR, manifest)
    return MAGIC + encoded(Unknown.DESCRIPTOR, type_meta) + field(2, BYTES, content)


def frame(how, kind, manifest):
    content = field(2, BYTES, field(1, BYTES, wrapped(kind, manifest)))
    change = encoded(WatchEvent.DESCRIPTOR, {"type": how}) + content
    return len(change).to_bytes(4, "big") + change


def encoded(kind, manifest):
    fields = {each.json_name: each for each in kind.fields}
    return b"".join(
        part
        for name, value in manifest.items()
        if value is not None
        for part in (_parts(fields[name], value) if name in fields else [_unknown(name, value)])
    )


def _parts(of, value):
    if of.message_type is not None and of.message_type.GetOptions().map_entry:
        entries = ({"key": key, "value": entry} for key, entry in value.items())
        yield from (field(of.number, BYTES, encoded(of.message_type, each)) for each in entries)
        return
    for each in value if isinstance(value, list) else [value]:
        yield _field(of, each)


def _field(of, value):
    if isinstance(value, int):
        return field(of.number, VARINT, varint(value))
    later = MESSAGES.get(of.json_name)
    if later is Time:
        # Kubernetes also writes the fraction, which is zero.
        seconds = round(datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp())
        return field(of.number, BYTES, field(1, VARINT, varint(seconds)) + field(2, VARINT, varint(0)))
    kind = of.message_type if later is None else later.DESCRIPTOR
    content = value.encode(errors="surrogateescape") if kind is None else encoded(kind, value)
    return field(of.number, BYTES, content)


def _unknown(name, value):
    return field(UNKNOWN, BYTES, json.dumps({name: value}).encode())


def field(number, kind, content):
    length = varint(len(content)) if kind == BYTES else b""
    return varint(number << 3 | kind) + length + content


def varint(value):
    left, parts = value & (2**64 - 1), bytearray()
    while left > 127:
        parts.append(left & 127 | 128)
        left >>= 7
    return bytes([*parts, left])

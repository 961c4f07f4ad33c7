"""Decodes the envelope around Kubernetes objects in protobuf, and strings that may not be valid UTF-8."""

import re
from functools import lru_cache
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from backend_plugin.kube.decoder import MalformedResponse
from kfpytorch_idl.kubernetes.envelope_pb2 import TypeMeta, WatchEvent

M = TypeVar("M", bound=Message)

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
ACCEPT: Final = f"{MEDIA_TYPE}, application/json"
"""The ``Accept`` header for protobuf. If an API server has no protobuf for a kind, it responds in JSON."""
_MAGIC: Final = b"k8s\0"
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")


def is_wrapped(body: bytes) -> bool:
    """True if the body is in the envelope of Kubernetes objects in protobuf; False for JSON."""
    return body.startswith(_MAGIC)


def decode_envelope(wrapping: type[Message], body: bytes, kind: bytes) -> Any:
    """Return the envelope of an object, decoded as a message of the type `wrapping`.

    Raises:
        MalformedResponse: If the body is not such an envelope, or its object is not of this kind.
    """
    if not is_wrapped(body):
        raise MalformedResponse(f"not an object in protobuf: {body[:80]!r}")
    envelope: Any = decode_message(wrapping, body[len(_MAGIC) :])
    if (found := _decode_kind(envelope.type_meta)) != kind:
        raise MalformedResponse(f"not a {decode_text(kind)}: {found!r}")
    return envelope


def decode_watch_event(part: bytes) -> tuple[bytes, bytes]:
    """Return the type of a watch event and its wrapped object; raise `MalformedResponse` if malformed."""
    event = decode_message(WatchEvent, part)
    return event.type, event.object.raw


@lru_cache(maxsize=64)
def _decode_kind(type_meta: bytes) -> bytes:
    return decode_message(TypeMeta, type_meta).kind


def decode_message(kind: type[M], data: bytes) -> M:
    """Decode `data` as a message of the type `kind`; raise `MalformedResponse` if that is impossible."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedResponse(f"not protobuf: {error}") from error


def decode_text(data: bytes) -> str:
    """Decode a string as in JSON responses: each byte that is not UTF-8 becomes a replacement character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8.sub("\N{REPLACEMENT CHARACTER}", data.decode(errors="surrogateescape"))

"""What all objects that come as protobuf are wrapped in.

Lives here: the envelope, and text, which need not be UTF-8. Does not: what is in it.
"""

import re
from functools import lru_cache
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from backend_plugin.kube.parsed import Malformed
from kfpytorch_idl.kubernetes.envelope_pb2 import TypeMeta, Unknown

M = TypeVar("M", bound=Message)

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
ACCEPT: Final = f"{MEDIA_TYPE}, application/json"
"""Whoever has no protobuf of it answers in JSON."""
_MAGIC: Final = b"k8s\0"
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")


def is_wrapped(body: bytes) -> bool:
    """Whether it is protobuf; JSON begins otherwise."""
    return body.startswith(_MAGIC)


def unwrapped(body: bytes, kind: bytes) -> bytes:
    """The object itself.

    Raises:
        Malformed: If it is none of this kind.
    """
    if not is_wrapped(body):
        raise Malformed(f"not an object in protobuf: {body[:80]!r}")
    said = message(Unknown, body[len(_MAGIC) :])
    if (found := _kind(said.type_meta)) != kind:
        raise Malformed(f"not a {text(kind)}: {found!r}")
    return said.raw


@lru_cache(maxsize=64)
def _kind(type_meta: bytes) -> bytes:
    return message(TypeMeta, type_meta).kind


def message(kind: type[M], said: bytes) -> M:
    """A message of this type; raises as `unwrapped` does."""
    try:
        return kind.FromString(said)
    except DecodeError as error:
        raise Malformed(f"not protobuf: {error}") from error


def text(said: bytes) -> str:
    """As it stands in JSON: of what is not UTF-8, each byte is one replacement character."""
    try:
        return said.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8.sub("\N{REPLACEMENT CHARACTER}", said.decode(errors="surrogateescape"))

"""What all objects that come as protobuf are wrapped in.

Lives here: the envelope, and text, which need not be UTF-8. Does not: what is in it.
"""

import re
from functools import lru_cache
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError
from typing_extensions import Self

from backend_plugin.kube.parsed import Malformed
from kfpytorch_idl.kubernetes.envelope_pb2 import TypeMeta, Unknown, WatchEvent


class Readable(Protocol):
    """A message of protobuf."""

    @classmethod
    def FromString(cls, s: bytes, /) -> Self:  # noqa: N802
        """Of its bytes."""


class Wrapping(Readable, Protocol):
    """One of those that have an object in them, as `Unknown`."""

    type_meta: bytes


M = TypeVar("M", bound=Readable)
W = TypeVar("W", bound=Wrapping)

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
ACCEPT: Final = f"{MEDIA_TYPE}, application/json"
"""Whoever has no protobuf of it answers in JSON."""
_MAGIC: Final = b"k8s\0"
# The type, and the object in a message of its own; of sizes that four bytes can say.
_CHANGE: Final = re.compile(
    rb"\n.(?P<type>ADDED|MODIFIED|DELETED|BOOKMARK)\x12(?P<outer>[\x80-\xff]{0,3}[\x00-\x7f])"
    rb"(?P<message>\n(?P<size>[\x80-\xff]{0,3}[\x00-\x7f]))(?=k8s\0)",
    re.DOTALL,
)
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")


def is_wrapped(body: bytes) -> bool:
    """Whether it is protobuf; JSON begins otherwise."""
    return body.startswith(_MAGIC)


def unwrapped(body: bytes, kind: bytes) -> bytes:
    """The object itself.

    Raises:
        Malformed: If it is none of this kind.
    """
    return opened(Unknown, body, kind).raw


def opened(wrapping: type[W], body: bytes, kind: bytes) -> W:
    """The envelope with the object in it; raises as `unwrapped` does."""
    if not is_wrapped(body):
        raise Malformed(f"not an object in protobuf: {body[:80]!r}")
    said = message(wrapping, body[len(_MAGIC) :])
    if (found := _kind(said.type_meta)) != kind:
        raise Malformed(f"not a {text(kind)}: {found!r}")
    return said


def change(part: bytes) -> tuple[bytes, bytes]:
    """The type of a change and its object, which is wrapped; raises as `unwrapped` does."""
    if match := _CHANGE.match(part):
        how, wrapped = match["type"], part[match.end() :]
        outer = len(part) - match.start("message")
        # Copied once: nothing comes after it.
        if (part[1], _varint(match["outer"]), _varint(match["size"])) == (len(how), outer, len(wrapped)):
            return how, wrapped
    said = message(WatchEvent, part)
    return said.type, said.object.raw


@lru_cache(maxsize=8_192)
def _varint(said: bytes) -> int:
    return sum((byte & 127) << 7 * at for at, byte in enumerate(said))


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

"""Parses objects from JSON: decodes only the fields that the server uses."""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Generic, TypedDict, TypeVar

import msgspec

from backend_plugin.core.job_metadata import MetadataFields, ReferenceFields
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.kube import api_errors
from backend_plugin.kube.decoder import ListPage, MalformedResponse, WatchedObject, WatchEvent
from backend_plugin.kube.splitters import LineSplitter
from backend_plugin.shell.cluster import Record

T = TypeVar("T")


# The values of scalar fields may have any type, because the readers check them.
class _GroupSpec(TypedDict, total=False):
    priority: Any
    queueName: Any
    queue: Any
    active: Any


class EventWire(TypedDict, total=False):
    """The fields of a core/v1 event that the server uses."""

    metadata: MetadataFields
    involvedObject: ReferenceFields
    reason: Any
    action: Any
    message: Any
    type: Any
    lastTimestamp: Any
    eventTime: Any
    series: Any


class GroupWire(TypedDict, total=False):
    """The fields of a PodGroup or a Workload that the server uses."""

    apiVersion: Any
    kind: Any
    metadata: MetadataFields
    spec: _GroupSpec
    status: Any


class _WatchLine(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


class _ListBody(msgspec.Struct, Generic[T], frozen=True, gc=False):
    kind: str
    metadata: dict[str, Any]
    items: list[T] | None


class JsonDecoder:
    """Parses objects of one kind from JSON. `pod_decoder.PodDecoder` has the same methods for protobuf."""

    splitter = LineSplitter
    """The class that splits a watch stream into lines, one per event. Its argument limits the line size."""

    def __init__(self, kind: Any, read: Callable[[Any], Record | None]) -> None:
        """Create a decoder that decodes JSON into the type `kind`; `read` converts the result to a record.

        `read` returns None for an object that does not belong to this backend.
        """
        self._line: msgspec.json.Decoder[_WatchLine[Any]] = msgspec.json.Decoder(_WatchLine[kind])
        self._body: msgspec.json.Decoder[_ListBody[Any]] = msgspec.json.Decoder(_ListBody[kind])
        self._read = read

    def decode_event(self, part: bytes) -> WatchEvent:
        """Parse one watch event.

        Raises:
            ApiError: If the event is an API error.
            MalformedResponse: If the bytes are not a watch event.
        """
        event = _decode(part, self._line, _whole_line)
        if event.type == "ERROR":
            raise api_errors.decode_event_error(part)
        return WatchEvent(event.type, self._decode_object(event.object))

    def decode_page(self, body: bytes) -> ListPage:
        """Parse one page of a list; raise `MalformedResponse` if the body is not a complete list."""
        page = _decode(body, self._body, _whole_body)
        # The page of a proxy and a `Status` are objects too, and would look like an empty list.
        if not page.kind.endswith("List"):
            raise MalformedResponse(f"not a list: {body[:80]!r}")
        return ListPage(
            items=map(self._decode_object, page.items or ()),
            version=get_text(page.metadata, "resourceVersion"),
            rest=get_text(page.metadata, "continue"),
        )

    def _decode_object(self, manifest: Manifest) -> WatchedObject:
        meta, record = get_mapping(manifest, "metadata"), self._read(manifest)
        named = record if record is not None and record.name else None
        name = named.name if named is not None else ""
        return WatchedObject(
            get_text(meta, "namespace"), name, get_text(meta, "uid"), get_text(meta, "resourceVersion"), named
        )


_whole_line: Final = msgspec.json.Decoder(_WatchLine[dict[str, Any]])
_whole_body: Final = msgspec.json.Decoder(_ListBody[dict[str, Any]])


def _decode(body: bytes, *decoders: "msgspec.json.Decoder[T]") -> T:
    """Return the result of the first decoder that can decode the body.

    The last decoder accepts fields of any type, so that a single object with a field of an unexpected type
    does not prevent the decoding of a whole list.
    """
    for decoder in decoders:
        with contextlib.suppress(ValueError, RecursionError):
            return decoder.decode(body)
    raise MalformedResponse(f"not JSON of the expected type: {body[:80]!r}")


def decode_object(body: bytes) -> Manifest:
    """Decode a whole object.

    Raises:
        MalformedResponse: If the body is not a JSON object.
    """
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"not a JSON object ({error}): {body[:80]!r}") from error

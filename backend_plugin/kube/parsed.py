"""The types into which API responses are parsed. The parsers are `wire` (JSON) and `pod_wire` (protobuf)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from backend_plugin.core.errors import BackendError
from backend_plugin.core.observed import Event
from backend_plugin.shell.cluster import Record


class Malformed(BackendError):
    """Raised for a body that an API server does not send, such as a truncated stream or a proxy's page."""


class Seen(NamedTuple):
    """An object of a list or of a watch event."""

    namespace: str
    name: str
    uid: str
    version: str
    record: Record | None
    """The record, or None for an object that does not belong to this backend."""

    @property
    def at(self) -> float:
        """Return the Unix timestamp of an event, in seconds; 0.0 for all other records."""
        at = self.record.at if isinstance(self.record, Event) else None
        return at.timestamp() if at is not None else 0.0


class Change(NamedTuple):
    """A watch event."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list."""

    items: Iterable[Seen]
    """Iterate once only: each object is parsed when it is consumed, and parsing takes most of the time."""
    version: str
    """The `resourceVersion` of the list. A watch from this version misses no change."""
    rest: str
    """The `continue` token of the next page. Empty on the last page."""

    def __post_init__(self) -> None:
        """Raise `Malformed` if there is no `resourceVersion`: a truncated list would look empty."""
        if not self.version:
            raise Malformed("a list without a resourceVersion")


class Parts(Protocol):
    """Splits a stream into parts."""

    cut: int
    """The number of bytes omitted from the part that was yielded last."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the parts that `piece` completes."""

    @property
    def rest(self) -> bytes | int:
        """The incomplete part, or the number of bytes that it lacks."""


class Parser(Protocol):
    """Parses the objects of one kind from one encoding."""

    def parts(self, longest: int) -> Parts:
        """Return a splitter of a watch stream into events. An event of more than `longest` bytes is cut."""

    def change(self, part: bytes) -> Change:
        """Parse one watch event.

        Raises:
            Answered: If the event is an API error.
            Malformed: If the bytes are not a watch event.
        """

    def page(self, body: bytes) -> Page:
        """Parse one page of a list.

        Raises:
            Malformed: If the body is not a complete list.
        """

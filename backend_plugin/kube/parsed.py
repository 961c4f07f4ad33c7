"""What an API server has sent, parsed, whatever it was written in.

Lives here: an object, a page, a change, and who makes them of bytes. Does not: how; JSON: `wire`, protobuf:
`pod_wire`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from backend_plugin.core.errors import BackendError
from backend_plugin.core.observed import Event
from backend_plugin.shell.cluster import Record


class Malformed(BackendError):
    """This is not what an API server sends: a stream that broke off, or somebody else's words."""


class Seen(NamedTuple):
    """One object, as it was listed or has changed."""

    namespace: str
    name: str
    uid: str
    version: str
    record: Record | None
    """None: it is not ours."""

    @property
    def at(self) -> float:
        """When an event was; of another kind it does not matter."""
        at = self.record.at if isinstance(self.record, Event) else None
        return at.timestamp() if at is not None else 0.0


class Change(NamedTuple):
    """One change of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some objects of a list."""

    items: Iterable[Seen]
    """To be gone through once: each is read when it is its turn, which takes most of the time of a page."""
    version: str
    """The list's `resourceVersion`: a watch that begins there misses nothing."""
    rest: str
    """What to `continue` with; empty: that was all."""

    def __post_init__(self) -> None:
        """Raises `Malformed` where it does not say as of when it is: half of one, which would look empty."""
        if not self.version:
            raise Malformed("a list without a resourceVersion")


class Parts(Protocol):
    """Pieces of a stream in, its parts out."""

    cut: int
    """Bytes that were left out of the part that was given last."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The parts that are complete with this piece."""

    @property
    def rest(self) -> bytes | int:
        """What is not complete yet, or how much is missing."""


class Parser(Protocol):
    """Parses the objects of one kind, in one language."""

    def parts(self, longest: int) -> Parts:
        """Of a watch: a change each; one of more bytes is cut."""

    def change(self, part: bytes) -> Change:
        """One change of a watch.

        Raises:
            Answered: If it is an error that the API server tells in a watch.
            Malformed: If it is none.
        """

    def page(self, body: bytes) -> Page:
        """One page of a list.

        Raises:
            Malformed: If it is none, whatever else it is; or less than was sent.
        """

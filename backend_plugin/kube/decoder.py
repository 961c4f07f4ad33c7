"""The types into which `json_decoder` and `pod_decoder` parse API responses."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from backend_plugin.core.errors import BackendError
from backend_plugin.core.observed import Event
from backend_plugin.shell.cluster import Record


class MalformedResponse(BackendError):
    """Raised for a body that an API server does not send, such as a truncated stream or a proxy's page."""


class WatchedObject(NamedTuple):
    """An object of a list or of a watch event."""

    namespace: str
    name: str
    uid: str
    version: str
    record: Record | None
    """The record, or None for an object that does not belong to this backend."""

    @property
    def key(self) -> tuple[str, str]:
        """The namespace of the object, and its uid; without a uid, its name."""
        return self.namespace, self.uid or self.name

    @property
    def timestamp(self) -> float:
        """Return the Unix timestamp of a core/v1 Event, in seconds; 0.0 for other objects."""
        at = self.record.at if isinstance(self.record, Event) else None
        return at.timestamp() if at is not None else 0.0


class WatchEvent(NamedTuple):
    """A watch event."""

    type: str
    """The event type: ADDED, MODIFIED, DELETED or BOOKMARK."""
    item: WatchedObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A page of a list."""

    items: Iterable[WatchedObject]
    """The objects of the page. Iterate only once, because each object is parsed when it is consumed."""
    version: str
    """The `resourceVersion` of the list. A watch from this version misses no change."""
    rest: str
    """The `continue` token of the next page. Empty on the last page."""

    def __post_init__(self) -> None:
        """Raise `MalformedResponse` if there is no `resourceVersion`: a truncated list would look empty."""
        if not self.version:
            raise MalformedResponse("a list without a resourceVersion")

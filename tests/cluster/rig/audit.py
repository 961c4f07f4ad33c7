"""What the API server was asked, by whom: its own log of it, which no client can leave out or make up."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rig.control_plane import ControlPlane

# Of a watch that has begun; it may never be complete.
_BEGUN: Final = "ResponseStarted"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request."""

    user: str
    verb: str
    group: str
    """Of the resource; empty for core/v1."""
    resource: str
    """With its part, if it is about one: ``pods/status``."""
    namespace: str
    name: str
    """Of the object; empty where many are meant."""
    at: str
    """When it came, RFC 3339."""
    status: int
    """Of the answer, as HTTP has it."""

    @property
    def is_read(self) -> bool:
        """Whether it asks what there is; a watch is told."""
        return self.verb in {"get", "list"}


def calls(plane: ControlPlane) -> Sequence[Call]:
    """What propeller and the backend have asked for so far, in the order in which it came."""
    # The last line may be under way.
    written = plane.audit.read_text().rpartition("\n")[0].splitlines()
    return sorted(_calls(map(json.loads, written)), key=lambda each: each.at)


def _calls(events: Iterator[Mapping[str, Any]]) -> Iterator[Call]:
    for event in events:
        is_watch = event["verb"] == "watch"
        if (event["stage"] == _BEGUN) is not is_watch:
            continue
        about = event.get("objectRef", {})
        part = about.get("subresource", "")
        yield Call(
            user=event["user"]["username"],
            verb=event["verb"],
            group=about.get("apiGroup", ""),
            resource=about.get("resource", event["requestURI"].partition("?")[0]) + (part and f"/{part}"),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            at=event["requestReceivedTimestamp"],
            status=event["responseStatus"]["code"],
        )

"""The requests that the API server received, read from its audit log."""

import json
from dataclasses import dataclass

# The audit stage of a watch that has begun. A watch that does not end never reaches ResponseComplete.
_BEGUN = "ResponseStarted"


@dataclass(frozen=True, kw_only=True)
class Call:
    user: str
    verb: str
    group: str  # The API group of the resource; empty for core/v1.
    resource: str  # The resource, with its subresource if there is one: `pods/status`.
    name: str  # The name of the object; empty for requests about several objects.
    at: str  # The time at which the request arrived, RFC 3339.
    status: int  # The HTTP status of the response.

    @property
    def is_read(self):
        """True for get and list, but not for watch."""
        return self.verb in {"get", "list"}


def calls(plane):
    """Return all requests of propeller and the backend until now, in order of arrival."""
    written = plane.audit.read_text().rpartition("\n")[0].splitlines()  # The last line may be incomplete.
    return sorted(_calls(map(json.loads, written)), key=lambda each: each.at)


def _calls(events):
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
            name=about.get("name", ""),
            at=event["requestReceivedTimestamp"],
            status=event["responseStatus"]["code"],
        )

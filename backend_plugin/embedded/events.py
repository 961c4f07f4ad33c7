"""The event recorder: stores core/v1 events, counts equal events, and deletes old ones."""

import uuid
from datetime import timedelta
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_text, get_text_map, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import Key, format_time, get_key, get_uid
from backend_plugin.embedded.store import Store

SCHEDULER: Final = "default-scheduler"
KUBELET: Final = "kubelet"
NODE_CONTROLLER: Final = "node-controller"
TAINT_CONTROLLER: Final = "taint-eviction-controller"

_AGE: Final = timedelta(hours=1)
"""The maximum age of an event. It is the default of the Kubernetes API server."""


class EventRecorder:
    """Stores events in the store of the cluster, and deletes events that are older than one hour."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: dict[tuple[str, ...], Key] = {}
        """The store key of each event, by the result of `_get_event_key`. The oldest event comes first."""
        for event in sorted(store.list_objects("Event"), key=lambda event: get_text(event, "lastTimestamp")):
            self._events[_get_event_key(event)] = get_key(event)

    def record(self, involved: Manifest, body: Manifest) -> None:
        """Store a core/v1 event about the object `involved`, or increment the count of an equal event.

        `body` contains the fields of the event except the metadata, the times and the count, which are added.
        """
        now = format_time(self._store.clock())
        event = _build_event(involved, body, now)
        same = _get_event_key(event)
        known = self._store.get(self._events[same]) if same in self._events else None
        if known is None:
            new = self._store.create(event)
        else:
            count = (get_int(known, "count") or 1) + 1
            new = self._store.update({**known, "count": count, "lastTimestamp": now})
        self._events.pop(same, None)  # Move it to the end.
        self._events[same] = get_key(new)

    def expire(self) -> None:
        """Delete the events that are older than the maximum age."""
        before = self._store.clock() - _AGE
        for same, key in tuple(self._events.items()):
            event = self._store.get(key)
            last_time = None if event is None else get_time(event, "lastTimestamp")
            if last_time is not None and last_time >= before:
                break
            if event is not None:
                self._store.remove(get_uid(event))
            del self._events[same]


def _build_event(involved: Manifest, body: Manifest, now: str) -> Manifest:
    key = get_key(involved)
    # The pods of a job also have this label.
    job = {DIALECTS[key.kind].labels.job_name: key.name} if key.kind in DIALECTS else {}
    return {
        "involvedObject": {
            "apiVersion": get_text(involved, "apiVersion"),
            **key._asdict(),
            "uid": get_uid(involved),
        },
        **body,
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            # Nodes have no namespace. The API server stores their events in `default`.
            "namespace": key.namespace or "default",
            "name": f"{key.name}.{uuid.uuid4().hex[:16]}",
            "labels": {**get_text_map(involved, "metadata", "labels"), **job},
        },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _get_event_key(event: Manifest) -> tuple[str, ...]:
    """Return the fields that identify an event. Events with equal fields are stored once, with a count."""
    involved = get_text(event, "involvedObject", "uid")
    return (involved, *(get_text(event, key) for key in ("type", "reason", "message")))

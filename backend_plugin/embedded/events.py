"""The event recorder: stores core/v1 events, counts equal events, and deletes old ones."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from backend_plugin.core.dialects.table import DIALECTS, find_pod_dialect
from backend_plugin.core.reading import get_int, get_mapping, get_text, get_text_map, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import Key, format_time, get_key, get_label, get_uid
from backend_plugin.embedded.store import Clock, Store

SCHEDULER: Final = "default-scheduler"
KUBELET: Final = "kubelet"
NODE_CONTROLLER: Final = "node-controller"
TAINT_CONTROLLER: Final = "taint-eviction-controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRetention:
    """The limits after which events are deleted."""

    age: timedelta = timedelta(hours=1)
    """The age after which an event is deleted; the default is that of an API server."""
    per_job: int = 500
    """The maximum number of events for one job and its pods; older ones are deleted."""


class _EventKey(NamedTuple):
    """The fields that identify equal events. Equal events are stored once, with a count."""

    about: str
    kind: str
    reason: str
    message: str


class _JobKey(NamedTuple):
    dialect: str
    namespace: str
    name: str


class EventRecorder:
    """Records events in a store, and deletes old ones."""

    def __init__(self, store: Store, limits: EventRetention, clock: Clock) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._jobs: dict[_JobKey, dict[_EventKey, Key]] = {}
        """The events of each job, ordered by their last timestamp, oldest first."""
        for event in sorted(store.list_objects("Event"), key=lambda event: get_text(event, "lastTimestamp")):
            self._jobs.setdefault(_get_job_key(event), {})[_get_event_key(event)] = get_key(event)

    def record(self, involved: Manifest, body: Manifest) -> None:
        """Record a core/v1 event about an object. `body` needs no metadata, times or count."""
        now = format_time(self._clock())
        event = _build_event(involved, body, now)
        events = self._jobs.setdefault(_get_job_key(event), {})
        same = _get_event_key(event)
        known = self._store.get(events[same]) if same in events else None
        if known is None:
            events[same] = get_key(self._store.create(event))
        else:
            count = (get_int(known, "count") or 1) + 1
            self._store.update({**known, "count": count, "lastTimestamp": now})
            events[same] = events.pop(same)
        while len(events) > self._limits.per_job:
            self._remove_event(events, next(iter(events)))

    def expire(self) -> None:
        """Delete the events that are older than the limit."""
        before = self._clock() - self._limits.age
        for job, events in tuple(self._jobs.items()):
            for same, key in tuple(events.items()):
                event = self._store.get(key)
                last_time = None if event is None else get_time(event, "lastTimestamp")
                if last_time is not None and last_time >= before:
                    break
                self._remove_event(events, same)
            if not events:
                del self._jobs[job]

    def _remove_event(self, events: dict[_EventKey, Key], same: _EventKey) -> None:
        event = self._store.get(events.pop(same))
        if event is not None:
            self._store.remove(get_uid(event))


def build_body(component: str, reason: str, message: str, *, warning: bool = False) -> Manifest:
    """Return the body of an event that a component reports."""
    kind = "Warning" if warning else "Normal"
    return {"reason": reason, "message": message, "type": kind, "source": {"component": component}}


def _build_event(involved: Manifest, body: Manifest, now: str) -> Manifest:
    key = get_key(involved)
    labels: Mapping[str, str] = get_text_map(involved, "metadata", "labels")
    if key.kind in DIALECTS:
        labels = {**labels, DIALECTS[key.kind].labels.job_name: key.name}  # Pods have the same label.
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            # Nodes have no namespace. The API server stores their events in `default`.
            "namespace": key.namespace or "default",
            "name": f"{key.name}.{uuid.uuid4().hex[:16]}",
            "labels": dict(labels),
        },
        "involvedObject": {
            "apiVersion": get_text(involved, "apiVersion"),
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": get_uid(involved),
        },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        **{each: value for each, value in body.items() if each not in _OURS},
    }


# Fields of `body` that are ignored, because the recorder or the store sets them.
_OURS: Final[Sequence[str]] = ("apiVersion", "kind", "metadata", "firstTimestamp", "lastTimestamp", "count")


def _get_job_key(event: Manifest) -> _JobKey:
    metadata = get_mapping(event, "metadata")
    dialect = find_pod_dialect(get_text_map(metadata, "labels"))
    return _JobKey(dialect.name, get_text(metadata, "namespace"), get_label(event, dialect.labels.job_name))


def _get_event_key(event: Manifest) -> _EventKey:
    involved = get_text(event, "involvedObject", "uid")
    return _EventKey(involved, get_text(event, "type"), get_text(event, "reason"), get_text(event, "message"))

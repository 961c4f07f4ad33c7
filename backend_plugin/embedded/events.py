"""The event recorder: stores core/v1 events, counts equal events, and deletes old ones."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from backend_plugin.core.reading import moment, number, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller.objects import JOB_NAME
from backend_plugin.embedded.objects import Key, key_of, label_of, stamp, uid_of
from backend_plugin.embedded.store import Clock, Store

SCHEDULER: Final = "default-scheduler"
KUBELET: Final = "kubelet"
NODE_CONTROLLER: Final = "node-controller"
TAINT_CONTROLLER: Final = "taint-eviction-controller"
OPERATOR: Final = "pytorchjob-controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """The content of an event."""

    reason: str
    message: str
    component: str
    """The component that reports the event."""
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The retention of events."""

    age: timedelta = timedelta(hours=1)
    """The default event lifetime of an API server."""
    per_job: int = 500
    """The maximum number of events for one job and its pods; older ones are deleted."""


class _Same(NamedTuple):
    """The fields that identify equal events. Equal events are stored once, with a count."""

    about: str
    kind: str
    reason: str
    message: str


class _Job(NamedTuple):
    namespace: str
    name: str


class Recorder:
    """Records events in a store, and deletes old ones."""

    def __init__(self, store: Store, limits: Limits, clock: Clock) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._jobs: dict[_Job, dict[_Same, Key]] = {}
        """The events of each job, ordered by their last timestamp, oldest first."""
        for event in sorted(store.all("Event"), key=lambda event: text(event, "lastTimestamp")):
            self._jobs.setdefault(_job(event), {})[_same(event)] = key_of(event)

    def say(self, about: Manifest, saying: Saying) -> None:
        """Record an event about an object."""
        body = {
            "reason": saying.reason,
            "message": saying.message,
            "type": "Warning" if saying.warning else "Normal",
            "source": {"component": saying.component},
        }
        self.record(about, body)

    def record(self, about: Manifest, body: Manifest) -> None:
        """Record a core/v1 event about an object. The recorder sets its metadata, times and count."""
        now = stamp(self._clock())
        event = _complete(about, body, now)
        events = self._jobs.setdefault(_job(event), {})
        same = _same(event)
        known = self._store.get(events[same]) if same in events else None
        if known is None:
            events[same] = key_of(self._store.create(event))
        else:
            count = (number(known, "count") or 1) + 1
            self._store.update({**known, "count": count, "lastTimestamp": now})
            events[same] = events.pop(same)
        while len(events) > self._limits.per_job:
            self._forget(events, next(iter(events)))

    def expire(self) -> None:
        """Delete the events that are older than the limit."""
        before = self._clock() - self._limits.age
        for job, events in tuple(self._jobs.items()):
            for same, key in tuple(events.items()):
                event = self._store.get(key)
                said = None if event is None else moment(event, "lastTimestamp")
                if said is not None and said >= before:
                    break
                self._forget(events, same)
            if not events:
                del self._jobs[job]

    def _forget(self, events: dict[_Same, Key], same: _Same) -> None:
        event = self._store.get(events.pop(same))
        if event is not None:
            self._store.remove(uid_of(event))


def _complete(about: Manifest, body: Manifest, now: str) -> Manifest:
    key = key_of(about)
    labels: Mapping[str, str] = texts(section(about, "metadata"), "labels")
    if key.kind == "PyTorchJob":
        labels = {**labels, JOB_NAME: key.name}  # Pods have the same label.
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
            "apiVersion": text(about, "apiVersion"),
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid_of(about),
        },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        **{each: value for each, value in body.items() if each not in _OURS},
    }


# Fields of `body` that are ignored, because the recorder or the store sets them.
_OURS: Final[Sequence[str]] = ("apiVersion", "kind", "metadata", "firstTimestamp", "lastTimestamp", "count")


def _job(event: Manifest) -> _Job:
    return _Job(text(section(event, "metadata"), "namespace"), label_of(event, JOB_NAME))


def _same(event: Manifest) -> _Same:
    about = text(section(event, "involvedObject"), "uid")
    return _Same(about, text(event, "type"), text(event, "reason"), text(event, "message"))

"""Merges the records of one kind from several reflectors, and sends them to the consumer of a watch."""

import asyncio
from collections.abc import Iterable
from typing import Final

from backend_plugin.core.observed import Event, Job
from backend_plugin.kube.decoder import WatchedObject
from backend_plugin.shell.cluster import ObjectName, Record, Sink


class MergedKind:
    """Merges the records of one kind, such as pods, from several reflectors; each has its own `KindPart`."""

    def __init__(self, sink: Sink, record: type[Record]) -> None:
        self.sink: Final = sink
        self.record: Final = record
        self.complete = asyncio.Event()
        """Set when the consumer of the watch has received all records."""
        self._parts: list[KindPart] = []
        self.is_retaining = False
        """True if the parts keep their records after a snapshot, a list of all records, for the next one."""

    def add_part(self) -> "KindPart":
        """Return a new `KindPart` for one more reflector. Call this before any reflector gets records."""
        part = KindPart(self)
        self._parts.append(part)
        self.is_retaining = self.record is not Event and len(self._parts) > 1
        return part

    def deliver_snapshot(self) -> None:
        """Send all records to the watch's consumer, if each reflector has a complete list or cannot list."""
        if not self._is_deliverable():
            return
        watched = (each for part in self._parts for each in part.kept.values())
        by_time = sorted(watched, key=lambda each: each.timestamp)
        records = [(each.namespace, each.record) for each in by_time if each.record is not None]
        self.sink.replace_records(self.record, records)
        self.complete.set()
        for part in self._parts:
            part.mark_delivered()

    def _is_deliverable(self) -> bool:
        if not all(part.settled for part in self._parts):
            return False
        if self.record is not Job or any(part.listed for part in self._parts):
            return True
        # A server that may not read the jobs of the cluster must not become ready.
        return not any(part.forbidden for part in self._parts)


class KindPart:
    """The records of one kind from one reflector, which lists and watches the kind in the API server."""

    def __init__(self, gathering: MergedKind) -> None:
        self._gathering = gathering
        self.settled = self.listed = self.forbidden = False
        """`settled`: the reflector has completed a list, or cannot list. `listed`: it has completed a list.
        `forbidden`: it has no permission to list."""
        self.kept: dict[tuple[str, str], WatchedObject] = {}
        """The records for the next snapshot. If there are several parts, they also remain for later ones."""
        self._newest = 0

    def replace_records(self, watched_objects: Iterable[WatchedObject]) -> None:
        """Replace the reflector's records by a complete list that it has received from the API server.

        Exception: once the consumer of the watch has all core/v1 Events, a list of Events only adds new ones
        and replaces none, because an Event that the API server has deleted is still valid.
        """
        if self._gathering.record is Event and self._gathering.complete.is_set():
            # Events are only added: one that the API server has removed after an hour is still valid.
            self._add_events(watched_objects)
            return
        self.kept = {watched.key: watched for watched in watched_objects if watched.record is not None}
        self.settled = self.listed = True
        self._gathering.deliver_snapshot()

    def mark_unavailable(self, *, permitted: bool) -> None:
        """Record that the kind cannot be listed.

        If `permitted`, the cluster does not serve the kind; else this server lacks the permission to list it.
        """
        self.forbidden = not permitted
        if not (self.settled and self._gathering.complete.is_set()):
            self.settled = True
            self._gathering.deliver_snapshot()

    def apply_change(self, watched: WatchedObject) -> None:
        """Store an added or modified object, send it to the consumer of the watch, or both.

        Before the consumer has received the first snapshot, the object is stored for it. After that, the
        object is sent, and also stored if later snapshots need it (`is_retaining`).
        """
        if watched.record is None:
            return
        gathering = self._gathering
        if gathering.record is Event:
            self._newest = max(self._newest, _parse_version(watched))
        is_complete = gathering.complete.is_set()
        if gathering.is_retaining or not is_complete:
            self.kept[watched.key] = watched
        if is_complete:
            gathering.sink.put_record(watched.namespace, watched.record)

    def apply_deletion(self, watched: WatchedObject) -> None:
        """Remove a deleted object here and at the watch's consumer, except Events, which remain valid."""
        if watched.record is None or self._gathering.record is Event:
            return
        self.kept.pop(watched.key, None)
        if self._gathering.complete.is_set():
            name = ObjectName(namespace=watched.namespace, name=watched.name, uid=watched.uid or None)
            self._gathering.sink.drop_record(self._gathering.record, name)

    def mark_delivered(self) -> None:
        """Discard `kept` unless later snapshots need it. Call this after the sink has received a snapshot."""
        if self._gathering.record is Event:
            self._newest = max((self._newest, *map(_parse_version, self.kept.values())))
        if not self._gathering.is_retaining:
            self.kept = {}

    def _add_events(self, watched_objects: Iterable[WatchedObject]) -> None:
        newest = self._newest
        for watched in sorted(watched_objects, key=lambda watched: watched.timestamp):
            if _parse_version(watched) > newest or not watched.version.isdecimal():
                self.apply_change(watched)


def _parse_version(watched: WatchedObject) -> int:
    """Return the resource version of an object as a number; 0 if it is no number."""
    return int(watched.version) if watched.version.isdecimal() else 0

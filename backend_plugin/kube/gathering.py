"""Merges the records of one kind from several reflectors and sends them to a sink.

Each part belongs to one reflector: a namespace, or one of several resources that map to the same kind of
record.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from backend_plugin.core.observed import Event, Job
from backend_plugin.kube.parsed import Seen
from backend_plugin.shell.cluster import Name, Record, Sink


class Gathering:
    """The records of one kind."""

    def __init__(self, sink: Sink, record: type[Record]) -> None:
        self.sink: Final = sink
        self.record: Final = record
        self.complete = asyncio.Event()
        """Set when the sink has received all records."""
        self._parts: list[Part] = []

    def part(self) -> "Part":
        """Add a part. All parts must be added before one of them receives records."""
        part = Part(self)
        self._parts.append(part)
        return part

    @property
    def is_shared(self) -> bool:
        """True if there are several parts."""
        return len(self._parts) > 1

    def tell_all(self) -> None:
        """Send all records to the sink, if every part is settled."""
        settled = all(part.settled for part in self._parts)
        # A server that cannot read any jobs must not become ready.
        if settled and (self.record is not Job or any(part.listed for part in self._parts)):
            found = sorted(
                (seen for part in self._parts for seen in part.kept.values()), key=lambda seen: seen.at
            )
            self._replace(found)
            self.complete.set()
            for part in self._parts:
                part.told()

    def _replace(self, found: Iterable[Seen]) -> None:
        records = [(seen.namespace, seen.record) for seen in found if seen.record is not None]
        self.sink.replace(self.record, records)


class Part:
    """The records of one reflector."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self.settled = self.listed = False
        self.kept: dict[tuple[str, str], Seen] = {}
        """The records that the sink has not received. A relist of another part may need them longer."""
        self._newest = 0

    def replace(self, found: Iterable[Seen]) -> None:
        """Replace the records of this part after a list."""
        if self._gathering.record is Event and self._gathering.complete.is_set():
            # Events are only added: an event that expired after an hour is still valid.
            self._add(found)
            return
        self.kept = {
            (seen.namespace, seen.uid or seen.name): seen for seen in found if seen.record is not None
        }
        self.settled = self.listed = True
        self._gathering.tell_all()

    def lack(self, *, permitted: bool) -> None:
        """Settle the part although the resource is absent or forbidden. Earlier records remain."""
        self.listed |= permitted
        if not self.settled:
            self.settled = True
            self._gathering.tell_all()

    def change(self, seen: Seen) -> None:
        """Record that one object was added or modified."""
        if seen.record is None:
            return
        gathering = self._gathering
        if gathering.record is Event:
            self._newest = max(self._newest, _number(seen))
        if self._keeps:
            self.kept[seen.namespace, seen.uid or seen.name] = seen
        if gathering.complete.is_set():
            gathering.sink.put(seen.namespace, seen.record)

    def drop(self, seen: Seen) -> None:
        """Record that one object was deleted."""
        if seen.record is None or self._gathering.record is Event:
            return
        self.kept.pop((seen.namespace, seen.uid or seen.name), None)
        if self._gathering.complete.is_set():
            name = Name(namespace=seen.namespace, name=seen.name, uid=seen.uid or None)
            self._gathering.sink.drop(self._gathering.record, name)

    def told(self) -> None:
        """Record that the sink has received the kept records."""
        if self._gathering.record is Event:
            self._newest = max((self._newest, *map(_number, self.kept.values())))
        if not self._keeps:
            self.kept = {}

    @property
    def _keeps(self) -> bool:
        complete = self._gathering.complete.is_set()
        return not complete or (self._gathering.is_shared and self._gathering.record is not Event)

    def _add(self, found: Iterable[Seen]) -> None:
        newest = self._newest
        for seen in sorted(found, key=lambda seen: seen.at):
            if _number(seen) > newest or not seen.version.isdecimal():
                self.change(seen)


def _number(seen: Seen) -> int:
    """Return the resource version as a number; 0 if it is not one, in which case events are sent twice."""
    return int(seen.version) if seen.version.isdecimal() else 0

"""All records of one kind, which several reflectors may gather, told to a sink as one.

Lives here: when a kind is complete, and what stays of one part while another is listed anew. A namespace is a
part, and so is one of several resources that make the same records. Does not: where they come from.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from backend_plugin.core.observed import Event, Job
from backend_plugin.kube.parsed import Seen
from backend_plugin.shell.cluster import Name, Record, Sink


class Gathering:
    """What is known of one kind of record."""

    def __init__(self, sink: Sink, record: type[Record]) -> None:
        self.sink: Final = sink
        self.record: Final = record
        self.complete = asyncio.Event()
        """Set when the sink has been told of everything there is."""
        self._parts: list[Part] = []

    def part(self) -> "Part":
        """Another part; to be made before any is told of."""
        part = Part(self)
        self._parts.append(part)
        return part

    @property
    def is_shared(self) -> bool:
        """Whether there are several parts."""
        return len(self._parts) > 1

    def tell_all(self) -> None:
        """Once each part is settled: everything that there is."""
        settled = all(part.settled for part in self._parts)
        # A server that may not see a single job is of no use, and is not to look as if it were.
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
    """What one reflector has to say."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self.settled = self.listed = False
        self.kept: dict[tuple[str, str], Seen] = {}
        """Until all parts have been told; longer only where a list of another part needs it."""
        self._newest = 0

    def replace(self, found: Iterable[Seen]) -> None:
        """Everything that there is in this part."""
        if self._gathering.record is Event and self._gathering.complete.is_set():
            # Events are added only: those of an hour ago that are gone say what they said.
            self._add(found)
            return
        self.kept = {
            (seen.namespace, seen.uid or seen.name): seen for seen in found if seen.record is not None
        }
        self.settled = self.listed = True
        self._gathering.tell_all()

    def lack(self, *, permitted: bool) -> None:
        """There is no such kind, or we may not see it: the others do not wait, and what was seen stays."""
        self.listed |= permitted
        if not self.settled:
            self.settled = True
            self._gathering.tell_all()

    def change(self, seen: Seen) -> None:
        """One object is new or has changed."""
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
        """One object is gone."""
        if seen.record is None or self._gathering.record is Event:
            return
        self.kept.pop((seen.namespace, seen.uid or seen.name), None)
        if self._gathering.complete.is_set():
            name = Name(namespace=seen.namespace, name=seen.name, uid=seen.uid or None)
            self._gathering.sink.drop(self._gathering.record, name)

    def told(self) -> None:
        """The sink knows what is kept."""
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
    """Versions are opaque, and yet numbers in every API server; where not, events are told twice."""
    return int(seen.version) if seen.version.isdecimal() else 0

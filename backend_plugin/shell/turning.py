"""What a job that has run says on itself when it waits again, and when it runs again.

Lives here: when that is looked at, and written. Does not: what is said; see `core.turns`.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core import turns
from backend_plugin.core.errors import Refused
from backend_plugin.core.observed import Event
from backend_plugin.core.reading import section, text
from backend_plugin.core.turns import Way
from backend_plugin.core.values import Manifest
from backend_plugin.shell import whose
from backend_plugin.shell.cache import Cache, Entry
from backend_plugin.shell.cluster import Cluster
from backend_plugin.shell.judge import Judge
from backend_plugin.shell.orders import Orders

log = logging.getLogger(__name__)

_NEWS: Final = timedelta(minutes=5)
"""Afterwards what could not be written is left: it would be read as what is the case then."""


class Turning:
    """For all jobs of a server."""

    def __init__(self, cluster: Cluster, cache: Cache, judge: Judge, orders: Orders) -> None:
        self._cluster = cluster
        self._cache = cache
        self._judge = judge
        self._orders = orders

    def see(self, entry: Entry) -> None:
        """Have it said on a job that it has turned, if it has; nobody who asks for its phase waits for it."""
        # What was told before stands in events.
        if entry.job is None or not self._cache.is_complete(Event):
            return
        if entry.turned is not Way.WAITS and not turns.is_likely(entry.job, entry.pods, entry.events):
            return
        turn = self._judge.turn(entry)
        # That it runs again is said once more where the word before came late.
        if turn is None or (turn.way is entry.turned and turn.way is Way.WAITS):
            return
        entry.turned = turn.way
        if (event := turn.event) is not None:
            seen = self._judge.now()
            key = ("record", entry.key, text(section(event, "metadata"), "name"))
            self._orders.give(key, lambda: self._record(entry, turn.way, event, seen), whose.of_entry(entry))

    async def _record(self, entry: Entry, way: Way, event: Manifest, seen: datetime) -> None:
        if entry.turned is not way or self._judge.now() - seen > _NEWS:
            return
        try:
            await self._cluster.record(event)
        except Refused as refused:
            log.info("an event on the job is refused (%d %s): %s", refused.code, refused.reason, refused)

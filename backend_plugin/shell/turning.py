"""Kubernetes events on a job that waits again after it has run, or that runs again.

`core.turns` decides which event is due; this module records it.
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
"""An event that could not be written for this long is dropped, because readers would take it as current."""


class Turning:
    """Records the job events of one server."""

    def __init__(self, cluster: Cluster, cache: Cache, judge: Judge, orders: Orders) -> None:
        self._cluster = cluster
        self._cache = cache
        self._judge = judge
        self._orders = orders

    def see(self, entry: Entry) -> None:
        """Record an event on the job if one is due; the write happens in the background."""
        # Without a complete list of events, an event that already exists could be written again.
        if entry.job is None or not self._cache.is_complete(Event):
            return
        if entry.turned is not Way.WAITS and not turns.is_likely(entry.job, entry.pods, entry.events):
            return
        turn = self._judge.turn(entry)
        # Do not repeat WAITS. A resume event is repeated if the event before it arrived late.
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
            log.info(
                "the cluster rejected an event of the job (%d %s): %s", refused.code, refused.reason, refused
            )

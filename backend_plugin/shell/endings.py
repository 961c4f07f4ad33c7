"""What tasks leave in the object store is read once their jobs have ended, before Flyte is told of an end.

Lives here: when it is read, how often, and for how long a store is waited for. Does not: the store; see
`outcome`.
"""

import asyncio
import logging
from typing import Final

from backend_plugin.core import upkeep
from backend_plugin.shell import whose
from backend_plugin.shell.cache import Cache, Entry
from backend_plugin.shell.orders import Orders
from backend_plugin.shell.outcome import Found, Outcomes
from backend_plugin.shell.prefixes import PrefixRefused
from backend_plugin.shell.stores import StoreUnavailable, StoreUnusable

log = logging.getLogger(__name__)

LOOKS: Final = (0.0, 0.5, 1.5)
"""Seconds to wait before each look, until anything is found: some stores show a file late."""
PATIENCE: Final = 60.0
"""Seconds that an end waits for a store that does not answer; then the cluster's objects speak alone."""
_PAUSE: Final = 2.0


class Endings:
    """For all jobs of a server."""

    def __init__(self, cache: Cache, outcomes: Outcomes, orders: Orders) -> None:
        self._cache = cache
        self._outcomes = outcomes
        self.orders = orders

    def see(self, entry: Entry) -> None:
        """Have the files of a job read if it is over and they were not."""
        if entry.read or entry.looking or not upkeep.is_over(entry.observed()):
            return
        if prefix := entry.output_prefix:
            entry.looking = True
            # Of this entry: a later job of the same name has one of its own.
            self.orders.give(("read", entry), lambda: self._read(entry, prefix), whose.of_entry(entry))

    async def _read(self, entry: Entry, prefix: str) -> None:
        found: Found | None = None
        try:
            found = await self._looked(prefix)
        finally:  # Whatever happens, Flyte is not told for ever that it is being read.
            if found is not None and found.more:
                log.warning("%d more error files are not read", found.more, extra=whose.of_entry(entry))
            files, outputs = (found.error_files, found.outputs) if found else ((), None)
            self._cache.left(entry, files, outputs=outputs)

    async def _looked(self, prefix: str) -> Found | None:
        found: Found | None = None
        for pause in LOOKS:
            await asyncio.sleep(pause)
            found = await self._look(prefix)
            if found is None or found.error_files or found.outputs:
                break
        return found

    async def _look(self, prefix: str) -> Found | None:
        """None where nobody can look."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self._outcomes.look(prefix)
            except PrefixRefused as trouble:
                log.warning("what a task left is not read: %s", trouble)
                return None
            except StoreUnusable as trouble:
                log.error("what tasks leave cannot be read: %s", trouble)  # noqa: TRY400 - it says it all.
                return None
            except StoreUnavailable as trouble:
                log.warning("the store is asked again: %s", trouble)
                if asyncio.get_running_loop().time() > deadline:
                    return None
            await asyncio.sleep(_PAUSE)

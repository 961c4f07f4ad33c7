"""A queue of the jobs that must be reconciled."""

import asyncio
from collections.abc import Callable
from typing import Final

from backend_plugin.shell.cached_job import CachedJob

DELAY_SECONDS: Final = 0.05
"""Seconds between a change and the reconciliation. Changes of a job in this time are handled together."""


class ReconciliationQueue:
    """A queue of jobs. A job that is added several times within `DELAY_SECONDS` is reconciled once."""

    def __init__(self, reconcile: Callable[[CachedJob], None]) -> None:
        """Create an open queue that calls `reconcile` with each added job after `DELAY_SECONDS`."""
        self._reconcile = reconcile
        self._due: set[CachedJob] = set()
        self._is_closed = False

    def add(self, entry: CachedJob) -> None:
        """Reconcile a job soon; no effect if the queue is closed."""
        if self._is_closed:
            return
        if not self._due:
            asyncio.get_running_loop().call_later(DELAY_SECONDS, self._start_due)
        self._due.add(entry)

    def close(self) -> None:
        """Remove all jobs from the queue; later additions have no effect."""
        self._is_closed = True
        self._due.clear()

    def _start_due(self) -> None:
        due, self._due = self._due, set()
        for entry in due:
            # Separately, so that gRPC calls run in between, and an exception affects one job.
            asyncio.get_running_loop().call_soon(self._reconcile, entry)

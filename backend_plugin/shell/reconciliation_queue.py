"""The jobs that are due for reconciliation, now or later."""

import asyncio
from collections.abc import Callable
from typing import Final

from backend_plugin.shell.cached_job import CachedJob

DELAY_SECONDS: Final = 0.05
"""Seconds between a change and the reconciliation. Changes in this time are handled together."""


class ReconciliationQueue:
    """Reconciles a job once for all its additions within `DELAY_SECONDS`. A closed queue does nothing."""

    def __init__(self, reconcile: Callable[[CachedJob], None]) -> None:
        """Create an open queue that calls `reconcile` with each job that is due."""
        self._reconcile = reconcile
        self._due: set[CachedJob] = set()
        self._due_timer: asyncio.TimerHandle | None = None
        self._later: dict[CachedJob, asyncio.TimerHandle] = {}
        self._is_closed = False

    def add(self, entry: CachedJob) -> None:
        """Reconcile a job soon; no effect if the queue is closed."""
        if self._is_closed:
            return
        if not self._due:
            self._due_timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self._start_due)
        self._due.add(entry)

    def add_later(self, entry: CachedJob, seconds: float) -> None:
        """Reconcile a job after `seconds`, and cancel its earlier timer; no effect if the queue is closed."""
        if self._is_closed:
            return
        self._cancel_later(entry)
        self._later[entry] = asyncio.get_running_loop().call_later(seconds, self._on_later, entry)

    def close(self) -> None:
        """Drop all jobs and cancel all timers."""
        self._is_closed = True
        self._due.clear()
        if self._due_timer is not None:
            self._due_timer.cancel()
        for entry in [*self._later]:
            self._cancel_later(entry)

    def _start_due(self) -> None:
        due, self._due = self._due, set()
        for entry in due:
            # Separately, so that gRPC calls run in between, and an exception affects one job.
            asyncio.get_running_loop().call_soon(self._reconcile_unless_closed, entry)

    def _reconcile_unless_closed(self, entry: CachedJob) -> None:
        if not self._is_closed:
            self._reconcile(entry)

    def _on_later(self, entry: CachedJob) -> None:
        del self._later[entry]
        self.add(entry)

    def _cancel_later(self, entry: CachedJob) -> None:
        timer = self._later.pop(entry, None)
        if timer is not None:
            timer.cancel()

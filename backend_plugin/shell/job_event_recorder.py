"""Kubernetes events on jobs that wait for resources again after they ran, run again, or have a warning."""

import logging
from functools import partial

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.judging import job_events
from backend_plugin.core.judging.job_events import JobEventReason
from backend_plugin.core.observed import Event, Job
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest
from backend_plugin.shell.background_operations import BackgroundOperations, Order
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster
from backend_plugin.shell.judge import Judge

log = logging.getLogger(__name__)


class JobEventRecorder:
    """Records Kubernetes events on jobs that wait for resources again, run again, or have a warning."""

    def __init__(self, cluster: Cluster, cache: Cache, judge: Judge, orders: BackgroundOperations) -> None:
        self._cluster = cluster
        self._cache = cache
        self._judge = judge
        self._orders = orders

    def on_change(self, entry: CachedJob, job: Job) -> None:
        """Submit an event if the job waits for resources again, runs again, or has a new warning."""
        self._warn(entry, job)
        turn = self._judge.decide_job_event(entry) if self._can_need_event(entry, job) else None
        # Do not repeat a waiting event. A resume event may be due again if a waiting event arrived late.
        if turn is None or turn.reason is entry.last_event_reason is JobEventReason.WAITS:
            return
        entry.last_event_reason, entry.undisturbed = turn.reason, ()
        if (event := turn.event) is not None:
            self._submit(entry, event, lambda: self._record_turn(entry, turn.reason, event))

    def _can_need_event(self, entry: CachedJob, job: Job) -> bool:
        # Without a complete list of events, an event that already exists could be written again.
        return self._cache.is_complete(Event) and (
            entry.last_event_reason is JobEventReason.WAITS
            or job_events.can_need_event(job, entry.pods, entry.events)
        )

    def _warn(self, entry: CachedJob, job: Job) -> None:
        """Record one event for each warning about a job; all servers give the event the same name."""
        if entry.warned or not job_events.can_need_warning(job, entry.pod_groups):
            return
        for event in job_events.build_warning_events(entry.get_observed_state(), self._judge.now()):
            entry.warned = True
            self._submit(entry, event, partial(self._record_event, event))

    def _submit(self, entry: CachedJob, event: Manifest, record: Order) -> None:
        key = ("record_event", entry.key, get_text(event, "metadata", "name"))
        self._orders.submit(key, record, entry.log_fields)

    async def _record_turn(self, entry: CachedJob, reason: JobEventReason, event: Manifest) -> None:
        # Drop an event that could not be written before the next transition.
        if entry.last_event_reason is reason:
            await self._record_event(event)

    async def _record_event(self, event: Manifest) -> None:
        try:
            await self._cluster.record_event(event)
        except RequestRejected as refused:
            log.info(
                "the cluster rejected an event of the job (%d %s): %s", refused.code, refused.reason, refused
            )

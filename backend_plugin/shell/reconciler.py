"""The controller of the server: watches the cluster and reconciles each job.

`core.cleanup` decides what to do after a job has ended. A companion object, such as a pod group, is created
after its job. After a restart, the server derives all work from the objects in the cluster again. Only
deletions that were requested and not yet sent to the cluster are lost.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from backend_plugin.core import cleanup
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import JobRef
from backend_plugin.core.judging import job_events
from backend_plugin.core.judging.job_events import JobEventReason
from backend_plugin.core.judging.undisturbed_jobs import is_running_undisturbed, is_still_undisturbed
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.observed import Job, PodGroup
from backend_plugin.core.reading import get_text
from backend_plugin.core.scheduling import companions
from backend_plugin.core.values import Manifest
from backend_plugin.shell import job_metrics
from backend_plugin.shell.background_operations import Order
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob, Key
from backend_plugin.shell.cluster import AlreadyExists, Cluster, ClusterUnavailable, Misconfigured, ObjectName
from backend_plugin.shell.job_cleaner import JobCleaner, VerdictStore
from backend_plugin.shell.job_deleter import JobDeleter
from backend_plugin.shell.job_event_recorder import JobEventRecorder
from backend_plugin.shell.logging_setup import build_job_fields
from backend_plugin.shell.output_collector import OutputCollector
from backend_plugin.shell.prerequisites import Prerequisites
from backend_plugin.shell.reconciliation_queue import ReconciliationQueue
from backend_plugin.shell.task_responses import TaskResponses
from backend_plugin.shell.together import run_until_first_exit, timeout

log = logging.getLogger(__name__)

ACCOMPANY_CALL: Final = 2.0
"""Seconds that a CreateTask call waits for the companion objects of its job, such as a pod group."""
RESYNC_SECONDS: Final = 30
"""Seconds for one resync, which reconciles every job, because time alone can change a phase."""
_AT_START: Final = 2_000
"""Jobs per second in the first resync, which handles jobs that existed before this server started."""
REMEMBERED: Final = timedelta(hours=1)
"""Time for which a job that no longer exists stays in the cache; later requests query the cluster again."""
_PAUSE: Final = 1.0


class Reconciler:
    """Watches the jobs of a cluster, and performs what their state requires, such as a cleanup."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        answers: TaskResponses,
        endings: OutputCollector,
        seconds: int = RESYNC_SECONDS,
    ) -> None:
        """Create a reconciler with a resync period of `seconds`."""
        self._cluster = cluster
        self._cache = cache
        self._answers = answers
        self._judge = answers.judge
        self._endings = endings
        self._orders = endings.orders
        self.deleter = JobDeleter(cluster, cache, endings.orders, seconds)
        self._metrics = endings.orders.metrics
        self.prerequisites = Prerequisites(cluster, cache, endings.orders, answers.judge.now)
        self._cleaner = JobCleaner(cluster, self.deleter, VerdictStore(cluster, self._metrics))
        self._turning = JobEventRecorder(cluster, cache, answers.judge, endings.orders)
        self._queue = ReconciliationQueue(self._reconcile)
        self._seconds = seconds
        self._makes_groups = answers.judge.settings.kfpytorch.gang.can_create_groups
        """False if the settings let this server create no pod groups; jobs then have no companion objects."""

    # ---- watch and resync

    async def run(self) -> None:
        """Watch the cluster and reconcile jobs, until cancelled; call this once."""
        ignore = self._cache.listen(self._on_change)
        try:
            await run_until_first_exit(self._run_watch(), self._run_resyncs(), self.prerequisites.run())
        finally:
            ignore()
            self._queue.close()

    async def _run_watch(self) -> None:
        while True:
            try:
                await self._cluster.watch(self._cache)
            except ClusterUnavailable as error:
                self._metrics.cluster_errors.add("watch", "ClusterUnavailable")
                log.warning("cannot watch the cluster; retrying: %s", error)
            await asyncio.sleep(_PAUSE)

    async def _run_resyncs(self) -> None:
        await self._cache.ready.wait()
        await self._resync(1 + len(self._cache) // _AT_START, logging.DEBUG)
        if counts := Counter(
            entry.logged_phase.value for entry in self._cache if entry.logged_phase is not None
        ):
            log.info("existing jobs: %s", ", ".join(f"{count} {phase}" for phase, count in counts.items()))
        while True:
            await self._resync(self._seconds, logging.INFO)

    async def _resync(self, seconds: int, level: int) -> None:
        """Reconcile all jobs, spread over `seconds`; log new phases at `level`."""
        waiting = list(self._cache)
        share = max(1, -(-len(waiting) // seconds))
        while True:
            due, waiting = waiting[:share], waiting[share:]
            for entry in due:
                # Schedule each job separately: gRPC calls run in between, and an exception affects one job.
                asyncio.get_running_loop().call_soon(self._reconcile, entry, level)
                await asyncio.sleep(0)
            await asyncio.sleep(_PAUSE)
            if not waiting:
                return

    # ---- operations for calls

    def fetch_missing_job(self, ref: JobRef) -> None:
        """Start to fetch a job that is not in the cache, and add it; no effect until the cache is ready."""
        name = ObjectName(namespace=ref.namespace, name=ref.name, dialect=ref.dialect)
        if self._cache.ready.is_set():
            self._orders.submit(
                ("fetch_job", ref.namespace, ref.name),
                lambda: self._fetch_job(name, ref.output_prefix),
                build_job_fields(ref.namespace, ref.name),
            )

    async def _fetch_job(self, name: ObjectName, output_prefix: str) -> None:
        """Add a job to the cache as the API server has it now; mark it as gone if it does not exist."""
        key = (name.namespace, name.name)
        last = self._cache.get_last_record(key)
        manifest = await self._cluster.get(name)
        if manifest is not None:
            self._cache.merge_fetched_job(name.namespace, read_job(manifest), last)
        elif self._cache.get_last_record(key) is last:  # Otherwise the watch has received it meanwhile.
            self._cache.add_missing_job(key, output_prefix)

    async def ensure_companions(self, job: Job) -> None:
        """Create the missing companion objects (such as a pod group) of a job that has not ended.

        After `ACCOMPANY_CALL` seconds, or after a transient error, this continues in the background.

        Raises:
            RequestRejected: If the cluster rejects a companion object.
            Misconfigured: If a permission or an API is missing.
        """
        if companions.ANNOTATION not in job.annotations:
            return
        try:
            async with timeout(ACCOMPANY_CALL):
                await self._create_companions(job)
        except Misconfigured:
            raise
        except (ClusterUnavailable, asyncio.TimeoutError):
            self._schedule_companions((job.namespace, job.name))

    def _schedule_companions(self, key: Key) -> None:
        self._orders.submit(
            ("create_companions", key), lambda: self._create_missing_companions(key), build_job_fields(*key)
        )

    async def _create_missing_companions(self, key: Key) -> None:
        entry = self._cache.get(key)
        if (
            entry is not None
            and entry.job is not None
            and cleanup.is_missing_companions(entry.get_observed_state())
        ):
            await self._create_companions(entry.job)

    async def _create_companions(self, job: Job) -> None:
        if not cleanup.is_active(job):
            return
        for manifest in companions.read_companions(job):
            try:
                await self._cluster.create(manifest)
            except AlreadyExists:
                continue
            log.info("creating its %s", get_text(manifest, "kind"))
        entry = self._cache.get((job.namespace, job.name))
        if entry is not None:
            entry.accompanied = not entry.pod_groups

    # ---- reaction to changes

    def _on_change(self, entry: CachedJob) -> None:
        if self._is_running_undisturbed(entry):
            return
        # A pod group in the cache is tracked by the watch, so the flag is not needed any more.
        entry.accompanied = entry.accompanied and not entry.pod_groups
        entry.undisturbed = ()
        # Without delay, so that a terminal phase is not reported before the outputs are read.
        self._endings.on_change(entry)
        # Before the first list is complete, a job seems to have no pods, so its phase would be wrong.
        if self._cache.ready.is_set() and not self._is_new(entry):
            self.enqueue(entry)

    def _is_running_undisturbed(self, entry: CachedJob) -> bool:
        """True if all replicas run and the job requires no action of this server, which is the usual case."""
        # A job with a waiting event needs a resume event, even if the waiting event arrived late.
        is_pending = entry.unconfirmed or entry.last_event_reason is JobEventReason.WAITS
        if is_pending or entry.logged_phase is not Phase.RUNNING:
            return False
        job, before = entry.job, entry.undisturbed
        is_unchanged = before and job is not None and is_still_undisturbed(job, before, entry.pods)
        if not is_unchanged and self._may_require_work(entry):
            return False
        entry.undisturbed = entry.pods
        return True

    def _may_require_work(self, entry: CachedJob) -> bool:
        if self._has_companions(entry) or any(map(job_events.is_job_event, entry.events[-1:])):
            return True
        return not is_running_undisturbed(entry.get_observed_state())

    def _is_new(self, entry: CachedJob) -> bool:
        """True if no operator or scheduler has reacted to the job yet. The next resync then reconciles it."""
        is_missing = entry.unconfirmed or not entry.exists
        return not is_missing and entry.is_untouched and not self._has_companions(entry)

    def enqueue(self, entry: CachedJob) -> None:
        """Queue a job to be reconciled soon; no effect after `run` has ended."""
        self._queue.add(entry)

    def _reconcile(self, entry: CachedJob, level: int = logging.INFO) -> None:
        if entry.gone is not None:
            if self._judge.now() - entry.gone > REMEMBERED:
                self._cache.forget(entry)
            return
        if entry.unconfirmed:
            name = replace(entry.object_name, uid=None)
            self._submit("confirm_deleted", entry, lambda: self._fetch_job(name, entry.output_prefix))
        if entry.job is not None and not entry.reading_outputs:
            self._reconcile_existing(entry, entry.job, level)

    def _reconcile_existing(self, entry: CachedJob, job: Job, level: int) -> None:
        if (verdict := self._find_actionable_verdict(entry, job)) is not None:
            self._apply_verdict(entry, verdict, level)
        self._turning.on_change(entry, job)
        if (patch := self._judge.build_start_patch(entry)) is not None:
            self._submit("record_start", entry, lambda: self._cluster.patch(entry.object_name, patch))
        if self._has_companions(entry):
            self._reconcile_companions(entry)

    def _find_actionable_verdict(self, entry: CachedJob, job: Job) -> Verdict | None:
        """Return the verdict on a job if its phase must be logged, or the job may need cleanup; else None."""
        if self._needs_cleanup(entry, job):
            return self._judge.judge_entry(entry)
        known = self._answers.find_cached(entry)
        if known is not None and _is_applied(entry, known.phase):
            return None
        verdict = self._judge.judge_entry(entry)
        return None if _is_applied(entry, verdict.phase) else verdict

    def _needs_cleanup(self, entry: CachedJob, job: Job) -> bool:
        # A pod of an ended job may be created or bound after the end.
        return cleanup.has_active_pods(job, entry.pods) or cleanup.is_expired(
            entry.get_observed_state().job or job, self._judge.now()
        )

    def _submit(self, what: str, entry: CachedJob, operation: Order) -> None:
        self._orders.submit((what, entry.key), operation, entry.log_fields)

    def _has_companions(self, entry: CachedJob) -> bool:
        job = entry.job
        return self._makes_groups and job is not None and companions.ANNOTATION in job.annotations

    def _reconcile_companions(self, entry: CachedJob) -> None:
        observed = entry.get_observed_state()
        if left := cleanup.find_leftover_companions(observed):
            self._submit("delete_companions", entry, lambda: self._delete_companions(left))
            return
        may_lack = not entry.accompanied and self._cache.is_complete(PodGroup)
        if may_lack and cleanup.is_missing_companions(observed):
            self._schedule_companions(entry.key)

    async def _delete_companions(self, manifests: Sequence[Manifest]) -> None:
        for manifest in manifests:
            log.debug("deleting its %s", get_text(manifest, "kind"))
            await self._cluster.delete_companion(manifest)

    def _apply_verdict(self, entry: CachedJob, verdict: Verdict, level: int) -> None:
        if verdict.phase is not entry.logged_phase:
            entry.logged_phase = verdict.phase
            summary = verdict.message.partition("\n")[0]
            log.log(level, "%s: %s", verdict.phase.value, summary, extra=entry.log_fields)
            job_metrics.measure_start(self._metrics, entry, verdict.phase, self._judge.now())
            if verdict.phase is Phase.SUCCEEDED:
                # Pods that run longer are then deleted.
                asyncio.get_running_loop().call_later(cleanup.LINGER.total_seconds(), self.enqueue, entry)
        if actions := cleanup.plan_cleanup(entry.get_observed_state(), verdict, self._judge.now()):
            self._submit("clean_up", entry, self._cleaner.build_operation(entry, actions))


def _is_applied(entry: CachedJob, phase: Phase) -> bool:
    """True if `phase` is the last logged phase and not a failure: no log line and no cleanup is required."""
    return phase is entry.logged_phase and not phase.is_failure

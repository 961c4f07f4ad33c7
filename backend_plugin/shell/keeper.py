"""The controller of the server: watches the cluster and reconciles each job.

`core.upkeep` decides what to do. After a restart all work is derived from the objects again, except for
deletions that had not been sent.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from backend_plugin.core import attempts, turns, upkeep
from backend_plugin.core.job import JobRef, Run
from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Event, Job, PodGroup, read_job
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling import companions
from backend_plugin.core.task_phase import Phase, TaskPhase
from backend_plugin.core.turns import Way
from backend_plugin.core.upkeep import Duties
from backend_plugin.core.values import Manifest
from backend_plugin.shell import job_metrics, whose
from backend_plugin.shell.answers import Answers
from backend_plugin.shell.cache import Cache, Entry, Key
from backend_plugin.shell.cluster import AlreadyExists, Cluster, Misconfigured, Name, NotDurable, Unavailable
from backend_plugin.shell.endings import Endings
from backend_plugin.shell.timeouts import timeout
from backend_plugin.shell.together import together
from backend_plugin.shell.turning import Turning
from backend_plugin.shell.verdicts import Verdicts

log = logging.getLogger(__name__)

DELETE_CALL: Final = 1.0
"""Seconds that a DeleteTask waits for the deletion, which then continues in the background."""
ACCOMPANY_CALL: Final = 2.0
"""Seconds that a CreateTask waits for the companion objects of its job."""
ROUND: Final = 30
"""Seconds of one resync, which reconciles every job, because time alone can change a verdict."""
_AT_START: Final = 2_000
"""Jobs per second in the first resync, which handles jobs that existed before this server."""
REMEMBERED: Final = timedelta(hours=1)
"""Time for which a gone job stays in the cache; later requests query the cluster again."""
LEAVING: Final = (0.1, 0.4, 1.5, 4.0, 9.0, 15.0)
"""Seconds before each check that a deleted job is gone; after the last one, finalizers are reported."""
_PAUSE: Final = 1.0
_SOON: Final = 0.05
"""Seconds in which changes of a job are collected, because a created job arrives twice."""


class Keeper:
    """The reconciler of one server; `run` performs its work."""

    def __init__(
        self, cluster: Cluster, cache: Cache, answers: Answers, endings: Endings, seconds: int = ROUND
    ) -> None:
        """Create a reconciler with a resync period of `seconds`."""
        self._cluster = cluster
        self._cache = cache
        self._answers = answers
        self._judge = answers.judge
        self._endings = endings
        self._orders = endings.orders
        self._metrics = endings.orders.metrics
        self._verdicts = Verdicts(cluster, self._metrics)
        self._turning = Turning(cluster, cache, answers.judge, endings.orders)
        self._due: set[Entry] = set()
        self._seconds = seconds
        self._makes_groups = answers.judge.settings.kfpytorch.gang.makes_groups
        """False if the settings let this server create no pod groups; then it creates no companions."""

    # ---- watch and resync

    async def run(self) -> None:
        """Watch the cluster and reconcile jobs, until cancelled."""
        ignore = self._cache.listen(self._changed)
        try:
            await together(self._follow(), self._rounds())
        finally:
            ignore()

    async def _follow(self) -> None:
        while True:
            try:
                await self._cluster.follow(self._cache)
            except Unavailable as trouble:
                self._metrics.cluster_errors.add("follow", "Unavailable")
                log.warning("cannot watch the cluster; retrying: %s", trouble)
            await asyncio.sleep(_PAUSE)

    async def _rounds(self) -> None:
        await self._cache.ready.wait()
        await self._round(1 + len(self._cache) // _AT_START, logging.DEBUG)
        if told := Counter(entry.told.value for entry in self._cache if entry.told is not None):
            log.info("existing jobs: %s", ", ".join(f"{count} {phase}" for phase, count in told.items()))
        while True:
            await self._round(self._seconds, logging.INFO)

    async def _round(self, seconds: int, level: int) -> None:
        """Reconcile all jobs that are not steady, spread over `seconds`."""
        waiting = list(self._cache)
        share = max(1, -(-len(waiting) // seconds))
        while True:
            due, waiting = waiting[:share], waiting[share:]
            for entry in due:
                if self._is_steady(entry):
                    continue
                # Schedule each job separately: gRPC calls run in between, and an exception affects one job.
                asyncio.get_running_loop().call_soon(self._tend, entry, level)
                await asyncio.sleep(0)
            await asyncio.sleep(_PAUSE)
            if not waiting:
                return

    # ---- operations for calls

    def look_for(self, ref: JobRef) -> None:
        """Fetch a job that is not in the cache, and add the result to the cache."""
        if self._cache.ready.is_set():
            self._orders.give(
                ("look", ref.namespace, ref.name),
                lambda: self._look_for(ref),
                whose.of_name(ref.namespace, ref.name),
            )

    async def _look_for(self, ref: JobRef) -> None:
        last = self._cache.last((ref.namespace, ref.name))
        found = await self._cluster.get(Name(namespace=ref.namespace, name=ref.name))
        if found is not None:
            self._cache.answered(ref.namespace, read_job(found), last)
            return
        known = self._cache.of((ref.namespace, ref.name))
        if known is None or known.job is None:  # Otherwise it was created or observed during the request.
            entry = self._cache.absent((ref.namespace, ref.name), ref.output_prefix)
            self._endings.see(entry)

    async def delete(self, ref: JobRef) -> None:
        """Start to delete a job; return when it is deleted, or after `DELETE_CALL` seconds.

        Raises:
            NotDurable: If the cluster cannot store the deletion; it is retried, but lost on a restart.
        """
        order = self._delete(Name(namespace=ref.namespace, name=ref.name, uid=ref.uid), ref.output_prefix)
        await asyncio.wait([order], timeout=DELETE_CALL)
        if isinstance(error := self._orders.error(order), NotDurable):
            raise error

    async def accompany(self, job: Job) -> None:
        """Create the missing companion objects of a job that has not ended.

        After `ACCOMPANY_CALL` seconds, or after a transient error, this continues in the background.

        Raises:
            Refused: As `Cluster.create`.
            Misconfigured: As `Cluster.create`.
        """
        if companions.ANNOTATION not in job.annotations:
            return
        try:
            async with timeout(ACCOMPANY_CALL):
                await self._accompany(job)
        except Misconfigured:
            raise
        except (Unavailable, asyncio.TimeoutError):
            self._heal((job.namespace, job.name))

    def _heal(self, key: Key) -> None:
        self._orders.give(("accompany", key), lambda: self._healed(key), whose.of_name(*key))

    async def _healed(self, key: Key) -> None:
        entry = self._cache.of(key)
        if entry is not None and entry.job is not None and upkeep.lacks_companions(entry.observed()):
            await self._accompany(entry.job)

    async def _accompany(self, job: Job) -> None:
        if job.end is not None or job.deleting:
            return
        for manifest in companions.of(job):
            try:
                await self._cluster.create(manifest)
            except AlreadyExists:
                continue
            log.info("creating its %s", text(manifest, "kind"))
        entry = self._cache.of((job.namespace, job.name))
        if entry is not None:
            entry.accompanied = not entry.pod_groups

    def replace_earlier(self, run: Run) -> None:
        """Delete the jobs of earlier attempts of the same Flyte node.

        Raises:
            Superseded: If a later attempt of the node exists.
        """
        known = [(entry, entry.origin.run) for entry in self._cache.attempts(run) if entry.origin is not None]
        for entry, other in known:
            if entry.job is not None and entry.gone is None and attempts.is_earlier(other, run):
                name = Name(namespace=entry.namespace, name=entry.name, uid=entry.job.uid or None)
                self._delete(name, other.output_prefix)
        for _, other in known:
            if attempts.is_earlier(run, other):
                raise attempts.superseded(run, by=other)

    def _delete(self, name: Name, output_prefix: str) -> "asyncio.Task[None]":
        return self._orders.give(
            ("delete", name, output_prefix),
            lambda: self._delete_own(name, output_prefix, awaited=True),
            whose.of_name(name.namespace, name.name),
        )

    async def _delete_own(self, name: Name, output_prefix: str, *, awaited: bool = False) -> None:
        """Delete the job if its label and annotation match the output prefix."""
        found = await self._cluster.get(name)
        if found is None:
            return
        if not names.is_for(found, output_prefix):
            log.warning("not deleted: the job belongs to another attempt or another owner")
            return
        uid = text(section(found, "metadata"), "uid") or None
        name = replace(name, uid=uid)
        await self._cluster.delete(name, awaited=awaited)
        log.info("deleted")
        if not self._is_gone(name):
            self._orders.give(
                ("gone", name), lambda: self._leave(name), whose.of_name(name.namespace, name.name)
            )

    async def _leave(self, name: Name) -> None:
        """Wait until a deleted job is gone; log its finalizers once if it remains."""
        for pause in LEAVING:
            await asyncio.sleep(pause)
            if self._is_gone(name):
                return
        # The watch may have missed the deletion, and its records have no finalizers.
        found = await self._cluster.get(name)
        if found is None:
            return
        said = section(found, "metadata").get("finalizers")
        keeps = ", ".join(map(str, said)) if isinstance(said, Sequence) else ""
        log.warning("deleted %g s ago, but still present; its finalizers: %s", sum(LEAVING), keeps or "none")
        while self._cache.of((name.namespace, name.name)) is not None and not self._is_gone(name):
            await asyncio.sleep(self._seconds)

    def _is_gone(self, name: Name) -> bool:
        """True if the cache shows this job as gone or replaced; False if it was never observed."""
        entry = self._cache.of((name.namespace, name.name))
        if entry is None:
            return False
        return entry.gone is not None or (entry.job is not None and entry.job.uid != name.uid)

    # ---- reaction to changes

    def _changed(self, entry: Entry) -> None:
        # A pod group in the cache is tracked by the watch, so the flag is not needed any more.
        entry.accompanied = entry.accompanied and not entry.pod_groups
        if self._trains_on(entry):
            return
        entry.steady, entry.undisturbed = None, ()
        # Without delay, so that a terminal phase is not reported before the outputs are read.
        self._endings.see(entry)
        # Before the first list is complete, a job seems to have no pods, so a verdict would be wrong.
        if self._cache.ready.is_set() and not self._is_new(entry):
            self.see(entry)

    def _trains_on(self, entry: Entry) -> bool:
        """True if all replicas run and no work is required; most changes are of such jobs."""
        # A job with a waiting event needs a resume event, even if the waiting event arrived late.
        if entry.told is not Phase.RUNNING or entry.unconfirmed or entry.turned is Way.WAITS:
            return False
        job, before = entry.job, entry.undisturbed
        if job is None or not (before and upkeep.goes_on_undisturbed(job, before, entry.pods)):
            if self._has_companions(entry) or any(map(turns.is_own, entry.events[-1:])):
                return False
            if not upkeep.runs_undisturbed(entry.observed()):
                return False
        entry.undisturbed = entry.pods
        return True

    def _is_new(self, entry: Entry) -> bool:
        """True if nothing has happened to a new job; the next resync is soon enough for it."""
        job = entry.job
        return (
            job is not None
            and not (job.conditions or job.deleting or entry.gone or entry.unconfirmed)
            and not (entry.pods or entry.events or entry.pod_groups)
            and not self._has_companions(entry)
        )

    def _is_steady(self, entry: Entry) -> bool:
        """True if the job ran without required work, and the time until which that holds has not passed."""
        if entry.steady is None:
            return False
        job, until = entry.steady
        return job is entry.job and not entry.unconfirmed and self._judge.now() <= until

    def see(self, entry: Entry) -> None:
        """Queue a job to be reconciled soon."""
        if not self._due:
            asyncio.get_running_loop().call_later(_SOON, self._tend_due)
        self._due.add(entry)

    def _tend_due(self) -> None:
        due, self._due = self._due, set()
        for entry in due:
            asyncio.get_running_loop().call_soon(self._tend, entry)

    def _tend(self, entry: Entry, level: int = logging.INFO) -> None:
        """Reconcile one job; a new phase is logged at `level`."""
        if entry.gone is not None:
            if self._judge.now() - entry.gone > REMEMBERED:
                self._cache.forget(entry)
            return
        if entry.unconfirmed:
            self._orders.give(("confirm", entry.key), lambda: self._confirm(entry), whose.of_entry(entry))
        if entry.job is None or entry.looking:
            return
        if (verdict := self._news(entry)) is not None:
            self._see_to(entry, verdict, level)
        self._turning.see(entry)
        if self._has_companions(entry):
            self._see_to_companions(entry)

    def _news(self, entry: Entry) -> TaskPhase | None:
        """Return the verdict of a job if it requires work; otherwise None."""
        if self._trains_on(entry):
            verdict, until = self._judge.lasting(entry)
            # Until all events have been listed, a job event may be due.
            is_known = verdict.phase is entry.told and self._cache.is_complete(Event)
            entry.steady = (entry.job, until) if is_known and entry.job is not None else None
            has_duties = False
        else:
            # A pod of an ended job may be created or bound after the end.
            has_duties = entry.job is not None and upkeep.has_active_pods(entry.job, entry.pods)
            known = self._answers.known(entry)
            is_new = known is None or known.phase is not entry.told or known.phase.is_failure
            if not is_new and not has_duties:
                return None
            verdict = self._judge.phase(entry)
        return verdict if has_duties or verdict.phase is not entry.told or verdict.phase.is_failure else None

    def _has_companions(self, entry: Entry) -> bool:
        job = entry.job
        return self._makes_groups and job is not None and companions.ANNOTATION in job.annotations

    def _see_to_companions(self, entry: Entry) -> None:
        """Create missing companions, or delete those of an ended job; for example after a restart."""
        observed = entry.observed()
        if left := upkeep.companions_left(observed):
            self._orders.give(("part", entry.key), lambda: self._part(left), whose.of_entry(entry))
            return
        may_lack = not entry.accompanied and self._cache.is_complete(PodGroup)
        if may_lack and upkeep.lacks_companions(observed):
            self._heal(entry.key)

    async def _part(self, manifests: Sequence[Manifest]) -> None:
        for manifest in manifests:
            log.debug("deleting its %s", text(manifest, "kind"))
            await self._cluster.delete_companion(manifest)

    def _see_to(self, entry: Entry, verdict: TaskPhase, level: int) -> None:
        if verdict.phase is not entry.told:
            entry.told = verdict.phase
            said = verdict.message.partition("\n")[0]
            log.log(level, "%s: %s", verdict.phase.value, said, extra=whose.of_entry(entry))
            job_metrics.measure_start(self._metrics, entry, verdict.phase, self._judge.now())
            if verdict.phase is Phase.SUCCEEDED:
                asyncio.get_running_loop().call_later(upkeep.LINGER.total_seconds(), self.see, entry)
        if duties := upkeep.duties(entry.observed(), verdict, self._judge.now()):
            self._orders.give(("end", entry.key), lambda: self._do(entry, duties), whose.of_entry(entry))

    async def _confirm(self, entry: Entry) -> None:
        last = self._cache.last(entry.key)
        found = await self._cluster.get(Name(namespace=entry.namespace, name=entry.name))
        if found is None:
            self._cache.lost(entry)
        else:
            self._cache.answered(entry.namespace, read_job(found), last)

    async def _do(self, entry: Entry, duties: Duties) -> None:
        name = Name(namespace=entry.namespace, name=entry.name, uid=entry.job.uid if entry.job else None)
        if duties.patch is not None:
            log.debug("storing the failure on the job", extra=whose.of_entry(entry))
            await self._verdicts.store(name, duties.patch)
        if duties.delete:
            log.info("deleting the job, which failed before it started", extra=whose.of_entry(entry))
            await self._delete_own(name, entry.output_prefix)
        for pod in duties.pods:
            log.info(
                "deleting pod %s, which is left over from the job", pod.name, extra=whose.of_entry(entry)
            )
            # The uid protects a new pod of the same name.
            await self._cluster.delete_pod(
                Name(namespace=entry.namespace, name=pod.name, uid=pod.uid or None)
            )

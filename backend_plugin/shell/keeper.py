"""What goes on behind the calls: following the cluster, confirmations, ends, deletions, leftovers.

Lives here: when each is asked. Does not: what is to be asked; see `core.upkeep`. What is lost with this
process the next one finds again, for it is read off the objects; all but deletions that were not made yet.
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
from backend_plugin.shell import whose
from backend_plugin.shell.answers import Answers
from backend_plugin.shell.cache import Cache, Entry, Key
from backend_plugin.shell.cluster import AlreadyExists, Cluster, Misconfigured, Name, NotDurable, Unavailable
from backend_plugin.shell.endings import Endings
from backend_plugin.shell.timeouts import timeout
from backend_plugin.shell.together import together
from backend_plugin.shell.turning import Turning

log = logging.getLogger(__name__)

DELETE_CALL: Final = 1.0
"""Seconds that a DeleteTask waits for the deletion; then it goes on behind the answer."""
ACCOMPANY_CALL: Final = 2.0
"""Seconds that a CreateTask waits for what is to stand beside its job."""
ROUND: Final = 30
"""Seconds in which every job is looked at once, also one that nobody asks about: time passes for it, too."""
_AT_START: Final = 2_000
"""Jobs that were there before this server are looked at sooner: so many in a second."""
REMEMBERED: Final = timedelta(hours=1)
"""How long a job that is gone is remembered; afterwards the cluster is asked for it again."""
LEAVING: Final = (0.1, 0.4, 1.5, 4.0, 9.0, 15.0)
"""Seconds before each look whether a deleted job was told to be gone; later than that somebody keeps it."""
_PAUSE: Final = 1.0
_SOON: Final = 0.05
"""Seconds in which the changes of a job are gathered: one that is made is told of by its API server, too."""


class Keeper:
    """One for a server; `run` is its life."""

    def __init__(
        self, cluster: Cluster, cache: Cache, answers: Answers, endings: Endings, seconds: int = ROUND
    ) -> None:
        """Every job is looked at once in so many `seconds`."""
        self._cluster = cluster
        self._cache = cache
        self._answers = answers
        self._judge = answers.judge
        self._endings = endings
        self._orders = endings.orders
        self._metrics = endings.orders.metrics
        self._turning = Turning(cluster, cache, answers.judge, endings.orders)
        self._due: set[Entry] = set()
        self._seconds = seconds
        self._makes_groups = answers.judge.settings.kfpytorch.gang.makes_groups
        """Where the platform has others make them, or nobody, whatever a job says makes none."""

    # ---- its life

    async def run(self) -> None:
        """Follow the cluster and do what is to be done, until cancelled."""
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
                log.warning("the cluster is out of sight, and is asked again: %s", trouble)
            await asyncio.sleep(_PAUSE)

    async def _rounds(self) -> None:
        await self._cache.ready.wait()
        await self._round(1 + len(self._cache) // _AT_START, logging.DEBUG)
        if told := Counter(entry.told.value for entry in self._cache if entry.told is not None):
            log.info(
                "jobs that were there: %s", ", ".join(f"{count} {phase}" for phase, count in told.items())
            )
        while True:
            await self._round(self._seconds, logging.INFO)

    async def _round(self, seconds: int, level: int) -> None:
        """Look once, within so many seconds, at every job that may be another by now."""
        waiting = list(self._cache)
        share = max(1, -(-len(waiting) // seconds))
        while True:
            due, waiting = waiting[:share], waiting[share:]
            for entry in due:
                if self._is_steady(entry):
                    continue
                # Each by itself: calls come between, and a defect at one job is told and leaves the others.
                asyncio.get_running_loop().call_soon(self._tend, entry, level)
                await asyncio.sleep(0)
            await asyncio.sleep(_PAUSE)
            if not waiting:
                return

    # ---- what the calls ask for

    def look_for(self, ref: JobRef) -> None:
        """Ask the cluster itself for a job that the cache lacks; the answer goes into the cache."""
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
        if known is None or known.job is None:  # Else it was made, or seen, while we asked.
            entry = self._cache.absent((ref.namespace, ref.name), ref.output_prefix)
            self._endings.see(entry)

    async def delete(self, ref: JobRef) -> None:
        """Order the deletion of a job; returns when it is done, and after a moment in any case.

        Raises:
            NotDurable: If the cluster cannot store it now. The order goes on, but a restart forgets it.
        """
        order = self._delete(Name(namespace=ref.namespace, name=ref.name, uid=ref.uid), ref.output_prefix)
        await asyncio.wait([order], timeout=DELETE_CALL)
        if isinstance(error := self._orders.error(order), NotDurable):
            raise error

    async def accompany(self, job: Job) -> None:
        """Make what is to stand beside a job that goes on, as far as it is not there.

        What does not come about within `ACCOMPANY_CALL` goes on behind the call.

        Raises:
            Refused: As by `Cluster.create`.
            Misconfigured: As by `Cluster.create`.
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
            log.info("makes its %s", text(manifest, "kind"))
        entry = self._cache.of((job.namespace, job.name))
        if entry is not None:
            entry.accompanied = not entry.pod_groups

    def replace_earlier(self, run: Run) -> None:
        """Delete what earlier attempts of the same node have left.

        Raises:
            Superseded: If it is an earlier one itself.
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
        """Whoever orders it, and however late: what is deleted is the job that writes there, and no other."""
        found = await self._cluster.get(name)
        if found is None:
            return
        if not names.is_for(found, output_prefix):
            log.warning("not deleted: it is the job of another attempt, or of somebody else")
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
        """Returns when a job that was deleted is told to be gone; who keeps it is said once."""
        for pause in LEAVING:
            await asyncio.sleep(pause)
            if self._is_gone(name):
                return
        found = await self._cluster.get(name)  # It may be gone unseen; and nobody has told who keeps it.
        if found is None:
            return
        said = section(found, "metadata").get("finalizers")
        keeps = ", ".join(map(str, said)) if isinstance(said, Sequence) else ""
        log.warning(
            "deleted %g s ago, and kept by its finalizers: %s", sum(LEAVING), keeps or "there are none"
        )
        while self._cache.of((name.namespace, name.name)) is not None and not self._is_gone(name):
            await asyncio.sleep(self._seconds)

    def _is_gone(self, name: Name) -> bool:
        """Whether that very job was told to be; one that nobody has told of may be there."""
        entry = self._cache.of((name.namespace, name.name))
        if entry is None:
            return False
        return entry.gone is not None or (entry.job is not None and entry.job.uid != name.uid)

    # ---- what the objects ask for

    def _changed(self, entry: Entry) -> None:
        # Once we are told of them, we are also told if they go.
        entry.accompanied = entry.accompanied and not entry.pod_groups
        if self._trains_on(entry):
            return
        entry.steady, entry.undisturbed = None, ()
        # At once, so that nobody is told of an end before what it left is known.
        self._endings.see(entry)
        # Before everything is told of, a job seems to have no pods, and would be judged in vain.
        if self._cache.ready.is_set() and not self._is_new(entry):
            self.see(entry)

    def _trains_on(self, entry: Entry) -> bool:
        """Of such jobs most is told, and nothing is to be done: the next round is soon enough."""
        # Whoever has said that he waits says when he runs again, also where the word before came late.
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
        """Nothing has come of it yet, and for who waits in vain a round is soon enough."""
        job = entry.job
        return (
            job is not None
            and not (job.conditions or job.deleting or entry.gone or entry.unconfirmed)
            and not (entry.pods or entry.events or entry.pod_groups)
            and not self._has_companions(entry)
        )

    def _is_steady(self, entry: Entry) -> bool:
        """Whether it was seen to train on, and time alone has changed nothing: most jobs, of ten thousand."""
        if entry.steady is None:
            return False
        job, until = entry.steady
        return job is entry.job and not entry.unconfirmed and self._judge.now() <= until

    def see(self, entry: Entry) -> None:
        """Do soon what is to be done for a job."""
        if not self._due:
            asyncio.get_running_loop().call_later(_SOON, self._tend_due)
        self._due.add(entry)

    def _tend_due(self) -> None:
        due, self._due = self._due, set()
        for entry in due:
            asyncio.get_running_loop().call_soon(self._tend, entry)

    def _tend(self, entry: Entry, level: int = logging.INFO) -> None:
        """Whatever is to be done for one job now; a new phase is logged at this level."""
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
        """What is to be believed of a job, where something may follow from it."""
        if self._trains_on(entry):
            verdict, until = self._judge.lasting(entry)
            # What events say of its turns is yet to be told until all of them were.
            is_known = verdict.phase is entry.told and self._cache.is_complete(Event)
            entry.steady = (entry.job, until) if is_known and entry.job is not None else None
            has_duties = False
        else:
            # A pod of a job that has ended may be created, or placed, after the end.
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
        """A server may have ended between the two, or somebody has deleted the one of them."""
        observed = entry.observed()
        if left := upkeep.companions_left(observed):
            self._orders.give(("part", entry.key), lambda: self._part(left), whose.of_entry(entry))
            return
        may_lack = not entry.accompanied and self._cache.is_complete(PodGroup)
        if may_lack and upkeep.lacks_companions(observed):
            self._heal(entry.key)

    async def _part(self, manifests: Sequence[Manifest]) -> None:
        for manifest in manifests:
            log.debug("deletes its %s", text(manifest, "kind"))
            await self._cluster.delete_companion(manifest)

    def _see_to(self, entry: Entry, verdict: TaskPhase, level: int) -> None:
        if verdict.phase is not entry.told:
            entry.told = verdict.phase
            said = verdict.message.partition("\n")[0]
            log.log(level, "%s: %s", verdict.phase.value, said, extra=whose.of_entry(entry))
            if verdict.phase.is_failure and verdict.cause is not None:
                self._metrics.causes.add(verdict.cause.value)
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
        uid = entry.job.uid if entry.job else None
        if duties.patch is not None:
            log.debug("writes down why it failed", extra=whose.of_entry(entry))
            await self._cluster.patch(Name(namespace=entry.namespace, name=entry.name, uid=uid), duties.patch)
        if duties.delete:
            log.info("deletes a job that was given up before it began", extra=whose.of_entry(entry))
            await self._delete_own(
                Name(namespace=entry.namespace, name=entry.name, uid=uid), entry.output_prefix
            )
        for pod in duties.pods:
            log.info("stops %s, which its job has left behind", pod.name, extra=whose.of_entry(entry))
            # Of this uid: what has been made anew under its name is no leftover.
            await self._cluster.delete_pod(
                Name(namespace=entry.namespace, name=pod.name, uid=pod.uid or None)
            )

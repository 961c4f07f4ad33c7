"""Jobs whose execution is gone, found and deleted; and jobs without an owner, given theirs.

Lives here: what is asked, how often it must be so, and when. Does not: which jobs are in question,
`core.belonging`; how a cluster is asked.

A job is an orphan if Flyte's object of its execution is certainly not there, twice in a row, and nobody asks
for the job in between. What cannot be told, as while the API server is away, counts for nothing.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn, Protocol, TypeAlias

from backend_plugin.core import belonging
from backend_plugin.core.errors import Refused
from backend_plugin.core.job import OwnerReference, Run
from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Job, read_job
from backend_plugin.shell import whose
from backend_plugin.shell.allowed import Allowed
from backend_plugin.shell.cluster import Cluster, Name, Unavailable
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.together import together

log = logging.getLogger(__name__)

LEAST_AGE: Final = timedelta(hours=1)
"""A job younger than this is left alone, and one that has ended less than this ago: people look at it."""
_SETTLE: Final = timedelta(seconds=30)

_Key: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid."""


class Executions(Protocol):
    """What a cluster with Flyte's own objects in it can be asked, too."""

    async def jobs(self) -> Sequence[Job]:
        """Every job of ours that there is, asked of the cluster itself; raises `Unavailable`."""

    async def workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Flyte's object of an execution, asked of the cluster itself; None: there certainly is none here.

        Raises:
            Unavailable: If that cannot be told, also because such objects cannot be seen at all.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A job that nobody owns, and the attempt that it is for."""

    job: Job
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one look at all jobs has shown."""

    orphans: Sequence[Suspect]
    """As far as one look tells."""
    owned: Sequence[tuple[Suspect, OwnerReference]]
    """Those whose execution is there."""
    unclear: Mapping[str, int]
    """Why it cannot be told of how many jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphanage:
    """Looks for orphans, and deletes one."""

    cluster: Cluster
    executions: Executions
    """The same cluster, as to Flyte's objects."""
    allowed: Allowed
    """Which namespaces are our business."""
    now: Callable[[], datetime]
    least_age: timedelta = LEAST_AGE

    async def look(self) -> Found:
        """Ask for all jobs, and for the execution of each that is in question.

        Raises:
            Unavailable: If the jobs cannot be told.
        """
        orphans: list[Suspect] = []
        owned: list[tuple[Suspect, OwnerReference]] = []
        unclear: dict[str, int] = {}
        for (namespace, execution), there in self._by_execution(await self.executions.jobs()).items():
            try:
                owner = await self.executions.workflow(namespace, execution)
            except Unavailable as trouble:
                unclear[str(trouble)] = unclear.get(str(trouble), 0) + len(there)
                continue
            if owner is None:
                orphans += there
            else:
                owned += [(each, owner) for each in there]
        return Found(orphans=orphans, owned=owned, unclear=unclear)

    def _by_execution(self, jobs: Iterable[Job]) -> Mapping[tuple[str, str], Sequence[Suspect]]:
        found: dict[tuple[str, str], list[Suspect]] = {}
        for job in jobs:
            run = belonging.in_question(job, self.now(), self.least_age)
            if run is not None and self.allowed.serves(job.namespace):
                found.setdefault((job.namespace, run.execution), []).append(Suspect(job=job, run=run))
        return found

    async def delete(self, suspect: Suspect) -> bool:
        """Delete a job, unless it is another one meanwhile, or is in question no more.

        Raises:
            Unavailable: If it may not have been done.
        """
        name = _name(suspect.job)
        there = await self.cluster.get(name)
        if there is None or not name.uid or not names.is_for(there, suspect.run.output_prefix):
            return False
        if belonging.in_question(read_job(there), self.now(), self.least_age) is None:
            return False
        await self.cluster.delete(name, awaited=True)  # What was seen is to hold for it still.
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How often something is done."""

    look: timedelta
    """For orphans; 0: never."""
    settle: timedelta
    """What is asked about; propeller asks for a task every 5 s to an hour."""

    @classmethod
    def of(cls, look: timedelta) -> "Rhythm":
        """What is asked about between two looks is settled between them."""
        return cls(look=look, settle=min(_SETTLE, look / 4) if look else _SETTLE)


class Orphans:
    """What a server does about them; `run` is its life."""

    def __init__(self, orphanage: Orphanage, metrics: Metrics, rhythm: Rhythm) -> None:
        self._orphanage = orphanage
        self._metrics = metrics
        self._rhythm = rhythm
        self._asked: dict[_Key, Job] = {}
        """Since the last round."""
        self._living: set[_Key] = set()
        """Those that were asked about since the last look."""
        self._suspects: frozenset[_Key] = frozenset()

    def asked(self, job: Job | None) -> None:
        """Somebody asks about a job, so its execution lives, wherever it is."""
        if job is not None and belonging.is_open(job):
            self._asked[_key(job)] = job

    async def run(self) -> None:
        """Settle what is asked about, and look for orphans, until cancelled."""
        # Spread: servers that began together need not look together.
        look = self._rhythm.look * (0.9 + random.random() / 5)  # noqa: S311 - no secret.
        looking = [_each(look, self._look)] if look else []
        await together(_each(self._rhythm.settle, self._settle_all), *looking)

    # ---- jobs that somebody asks about

    async def _settle_all(self) -> None:
        asked, self._asked = self._asked, {}
        self._living |= asked.keys()
        for job in asked.values():
            await self._settle_asked(job)

    async def _settle_asked(self, job: Job) -> None:
        """Find out where the execution of a living job is, and write it on the job."""
        # Long before it can be in question, but not for each of the many that last a moment.
        run = belonging.in_question(job, self._orphanage.now(), self._orphanage.least_age / 2)
        if run is None:
            return
        try:
            owner = await self._orphanage.executions.workflow(job.namespace, run.execution)
        except Unavailable as trouble:
            log.debug("where its execution is cannot be told: %s", trouble, extra=whose.of_run(run, job.name))
            return  # Whoever asks, asks again.
        await self._settle(Suspect(job=job, run=run), owner)

    async def _settle(self, suspect: Suspect, owner: OwnerReference | None) -> None:
        try:
            await self._orphanage.cluster.patch(_name(suspect.job), belonging.settled(owner))
        except (Refused, Unavailable) as trouble:
            self._metrics.cluster_errors.add("settle", type(trouble).__name__)
            log.warning("it cannot be written down whose it is: %s", trouble, extra=_whose(suspect))
        else:
            self._metrics.orphans.add("elsewhere" if owner is None else "owned")

    # ---- jobs that nobody asks about

    async def _look(self) -> None:
        """What was found is suspected; what was suspected by the last look, too, is deleted."""
        try:
            found = await self._orphanage.look()
        except Unavailable as trouble:
            self._suspects = frozenset()  # It is twice in a row, or not at all.
            self._metrics.cluster_errors.add("orphans", "Unavailable")
            log.warning("orphans are looked for later: %s", trouble)
            return
        for why, jobs in found.unclear.items():
            log.info("of %d jobs without an owner it cannot be told whether they are orphans: %s", jobs, why)
        for suspect, owner in found.owned:
            await self._settle(suspect, owner)
        living, self._living = self._living | self._asked.keys(), set()
        there = [each for each in found.orphans if _key(each.job) not in living]
        before, self._suspects = self._suspects, frozenset(_key(each.job) for each in there)
        for suspect in there:
            if _key(suspect.job) in before:
                await self._delete(suspect)
            else:
                self._metrics.orphans.add("suspected")
                log.info("its execution is not there; it is looked at again", extra=_whose(suspect))

    async def _delete(self, suspect: Suspect) -> None:
        try:
            if await self._orphanage.delete(suspect):
                self._metrics.orphans.add("deleted")
                log.warning("deleted: its execution is gone, and nobody asks about it", extra=_whose(suspect))
        except Unavailable as trouble:
            self._metrics.cluster_errors.add("orphans", "Unavailable")
            log.warning("it cannot be deleted, and is looked at again: %s", trouble, extra=_whose(suspect))


async def _each(pause: timedelta, do: Callable[[], Awaitable[None]]) -> NoReturn:
    while True:
        await asyncio.sleep(pause.total_seconds())
        try:
            await do()
        except Exception:
            # A border: what is collected beside them is no reason to end what answers.
            log.exception("a defect of ours, while orphans were looked for")


def _key(job: Job) -> _Key:
    return job.namespace, job.name, job.uid


def _name(job: Job) -> Name:
    return Name(namespace=job.namespace, name=job.name, uid=job.uid or None)


def _whose(suspect: Suspect) -> Mapping[str, object]:
    return whose.of_run(suspect.run, suspect.job.name)

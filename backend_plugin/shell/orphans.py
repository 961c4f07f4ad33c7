"""Finds and deletes orphans: jobs whose Flyte execution is gone. Also sets missing owners of jobs.

A job is an orphan if two consecutive scans do not find the workflow object of its execution, and no client
requested the job in between. An inconclusive scan, as when the API server is down, does not count. Orphan
candidates are selected in `core.belonging`.
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
"""Younger jobs, and jobs that ended more recently, are kept, because users may inspect them."""
_SETTLE: Final = timedelta(seconds=30)

_Key: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid of a job."""


class Executions(Protocol):
    """The calls for workflow objects, in a cluster that contains Flyte's own objects."""

    async def jobs(self) -> Sequence[Job]:
        """List all our jobs from the API server, not from a cache; raises `Unavailable`."""

    async def workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Fetch the workflow object of an execution from the API server; None if it does not exist.

        Raises:
            Unavailable: If it cannot be determined, for example without permission to read such objects.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An orphan candidate: a job without an owner, and its attempt."""

    job: Job
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of one scan for jobs whose execution no longer exists."""

    orphans: Sequence[Suspect]
    """Candidates whose execution was missing in this scan."""
    owned: Sequence[tuple[Suspect, OwnerReference]]
    """Candidates whose execution exists, with the owner to set."""
    unclear: Mapping[str, int]
    """The number of undetermined candidates by error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphanage:
    """Scans for orphans, and deletes a single one."""

    cluster: Cluster
    executions: Executions
    """The same cluster, for Flyte's objects."""
    allowed: Allowed
    """The namespaces that this server serves."""
    now: Callable[[], datetime]
    least_age: timedelta = LEAST_AGE

    async def look(self) -> Found:
        """List all jobs, and fetch the workflow object of each orphan candidate.

        Raises:
            Unavailable: If the jobs cannot be listed.
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
        """Delete a job if it still exists and is still an orphan candidate; return True if it was deleted.

        Raises:
            Unavailable: If the deletion may have failed.
        """
        name = _name(suspect.job)
        there = await self.cluster.get(name)
        if there is None or not name.uid or not names.is_for(there, suspect.run.output_prefix):
            return False
        if belonging.in_question(read_job(there), self.now(), self.least_age) is None:
            return False
        await self.cluster.delete(name, awaited=True)  # A delayed deletion could act on an outdated check.
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """The intervals of the periodic work."""

    look: timedelta
    """Interval of the scans for orphans; 0 disables them."""
    settle: timedelta
    """Interval for setting the owners of requested jobs; FlytePropeller polls a task every 5 s to 1 h."""

    @classmethod
    def of(cls, look: timedelta) -> "Rhythm":
        """Return the intervals for a scan interval; owners are set at least four times between two scans."""
        return cls(look=look, settle=min(_SETTLE, look / 4) if look else _SETTLE)


class Orphans:
    """The periodic work on orphans of one server; `run` performs it."""

    def __init__(self, orphanage: Orphanage, metrics: Metrics, rhythm: Rhythm) -> None:
        self._orphanage = orphanage
        self._metrics = metrics
        self._rhythm = rhythm
        self._asked: dict[_Key, Job] = {}
        """The jobs without a known owner that were requested since owners were last set."""
        self._living: set[_Key] = set()
        """The jobs that were requested since the last scan."""
        self._suspects: frozenset[_Key] = frozenset()

    def asked(self, job: Job | None) -> None:
        """Record that a client requested a job, which shows that its execution exists in some cluster."""
        if job is not None and belonging.is_open(job):
            self._asked[_key(job)] = job

    async def run(self) -> None:
        """Set owners of requested jobs and scan for orphans, until cancelled."""
        # Jitter, so that servers that started together do not scan together.
        look = self._rhythm.look * (0.9 + random.random() / 5)  # noqa: S311 - not a secret.
        looking = [_each(look, self._look)] if look else []
        await together(_each(self._rhythm.settle, self._settle_all), *looking)

    # ---- requested jobs

    async def _settle_all(self) -> None:
        asked, self._asked = self._asked, {}
        self._living |= asked.keys()
        for job in asked.values():
            await self._settle_asked(job)

    async def _settle_asked(self, job: Job) -> None:
        """Look up the workflow object of a requested job, and record the result on the job."""
        # Before the job can become a candidate, but not for the many jobs that end soon.
        run = belonging.in_question(job, self._orphanage.now(), self._orphanage.least_age / 2)
        if run is None:
            return
        try:
            owner = await self._orphanage.executions.workflow(job.namespace, run.execution)
        except Unavailable as trouble:
            log.debug(
                "cannot determine where its execution is: %s", trouble, extra=whose.of_run(run, job.name)
            )
            return  # Retried at the next request.
        await self._settle(Suspect(job=job, run=run), owner)

    async def _settle(self, suspect: Suspect, owner: OwnerReference | None) -> None:
        try:
            await self._orphanage.cluster.patch(_name(suspect.job), belonging.settled(owner))
        except (Refused, Unavailable) as trouble:
            self._metrics.cluster_errors.add("settle", type(trouble).__name__)
            log.warning("cannot record the owner on the job: %s", trouble, extra=_whose(suspect))
        else:
            self._metrics.orphans.add("elsewhere" if owner is None else "owned")

    # ---- jobs without requests

    async def _look(self) -> None:
        """Delete the orphans that the previous scan also found; the others become candidates for deletion."""
        try:
            found = await self._orphanage.look()
        except Unavailable as trouble:
            self._suspects = frozenset()  # Only consecutive scans count.
            self._metrics.cluster_errors.add("orphans", "Unavailable")
            log.warning("cannot search for orphans; retrying later: %s", trouble)
            return
        for why, jobs in found.unclear.items():
            log.info("cannot determine if %d jobs without an owner are orphans: %s", jobs, why)
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
                log.info(
                    "its execution does not exist; the next scan checks the job again", extra=_whose(suspect)
                )

    async def _delete(self, suspect: Suspect) -> None:
        try:
            if await self._orphanage.delete(suspect):
                self._metrics.orphans.add("deleted")
                log.warning(
                    "deleted: its execution no longer exists, and no client requests it",
                    extra=_whose(suspect),
                )
        except Unavailable as trouble:
            self._metrics.cluster_errors.add("orphans", "Unavailable")
            log.warning(
                "cannot delete the job; the next scan checks it again: %s", trouble, extra=_whose(suspect)
            )


async def _each(pause: timedelta, do: Callable[[], Awaitable[None]]) -> NoReturn:
    while True:
        await asyncio.sleep(pause.total_seconds())
        try:
            await do()
        except Exception:
            # An unexpected error in this background work must not stop the server.
            log.exception("internal error in the search for orphans")


def _key(job: Job) -> _Key:
    return job.namespace, job.name, job.uid


def _name(job: Job) -> Name:
    return Name(namespace=job.namespace, name=job.name, uid=job.uid or None)


def _whose(suspect: Suspect) -> Mapping[str, object]:
    return whose.of_run(suspect.run, suspect.job.name)

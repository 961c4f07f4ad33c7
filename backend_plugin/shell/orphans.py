"""Finds and deletes orphans: jobs whose Flyte execution is gone. Also sets missing owners of jobs.

A job is an orphan if two consecutive scans do not find the workflow object of its execution, and no client
requested the job in between. An inconclusive scan, as when the API server is down, does not count. Orphan
candidates are selected in `core.ownership`.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn, Protocol, TypeAlias

from backend_plugin.core import names, ownership
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import Attempt, OwnerReference
from backend_plugin.core.observed import Job
from backend_plugin.shell import log_fields
from backend_plugin.shell.allowlist import Allowlist
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable, build_job_name
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.together import run_until_first_exit

log = logging.getLogger(__name__)

LEAST_AGE: Final = timedelta(hours=1)
"""Younger jobs, and jobs that ended more recently, are kept, because users may inspect them."""
_SETTLE: Final = timedelta(seconds=30)

_Key: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid of a job."""


class Executions(Protocol):
    """The calls for workflow objects, in a cluster that contains Flyte's own objects."""

    async def list_jobs(self) -> Sequence[Job]:
        """List all our jobs from the API server, not from a cache; raises `ClusterUnavailable`."""

    async def lookup_workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Fetch the workflow object of an execution from the API server; None if it does not exist.

        Raises:
            ClusterUnavailable: If it cannot be determined, such as without permission to read the objects.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanCandidate:
    """An orphan candidate: a job without an owner, and its attempt."""

    job: Job
    run: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanScan:
    """The result of one scan for jobs whose execution no longer exists."""

    orphans: Sequence[OrphanCandidate]
    """Candidates whose execution was missing in this scan."""
    owned: Sequence[tuple[OrphanCandidate, OwnerReference]]
    """Candidates whose execution exists, with the owner to set."""
    unclear: Mapping[str, int]
    """The number of undetermined candidates by error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFinder:
    """Scans for orphans, and deletes a single one."""

    cluster: Cluster
    executions: Executions
    """The same cluster, for Flyte's objects."""
    allowed: Allowlist
    """The namespaces that this server serves."""
    now: Callable[[], datetime]
    least_age: timedelta = LEAST_AGE

    async def scan(self) -> OrphanScan:
        """List all jobs, and fetch the workflow object of each orphan candidate.

        Raises:
            ClusterUnavailable: If the jobs cannot be listed.
        """
        orphans: list[OrphanCandidate] = []
        owned: list[tuple[OrphanCandidate, OwnerReference]] = []
        unclear: dict[str, int] = {}
        for (namespace, execution), candidates in self._group_by_execution(
            await self.executions.list_jobs()
        ).items():
            try:
                owner = await self.executions.lookup_workflow(namespace, execution)
            except ClusterUnavailable as trouble:
                unclear[str(trouble)] = unclear.get(str(trouble), 0) + len(candidates)
                continue
            if owner is None:
                orphans += candidates
            else:
                owned += [(each, owner) for each in candidates]
        return OrphanScan(orphans=orphans, owned=owned, unclear=unclear)

    def _group_by_execution(self, jobs: Iterable[Job]) -> Mapping[tuple[str, str], Sequence[OrphanCandidate]]:
        groups: dict[tuple[str, str], list[OrphanCandidate]] = {}
        for job in jobs:
            run = ownership.find_orphan_candidate(job, self.now(), self.least_age)
            if run is not None and self.allowed.is_served(job.namespace):
                groups.setdefault((job.namespace, run.execution), []).append(
                    OrphanCandidate(job=job, run=run)
                )
        return groups

    async def delete_orphan(self, suspect: OrphanCandidate) -> bool:
        """Delete a job if it still exists and is still an orphan candidate; return True if it was deleted.

        Raises:
            ClusterUnavailable: If the deletion may have failed.
        """
        name = build_job_name(suspect.job)
        manifest = await self.cluster.get(name)
        if (
            manifest is None
            or not name.uid
            or not names.has_output_prefix(manifest, suspect.run.output_prefix)
        ):
            return False
        if ownership.find_orphan_candidate(read_job(manifest), self.now(), self.least_age) is None:
            return False
        await self.cluster.delete(name, awaited=True)  # A delayed deletion could act on an outdated check.
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSchedule:
    """The intervals at which an `OrphanCollector` scans for orphans and sets owners."""

    look: timedelta
    """Interval of the scans for orphans; 0 disables them."""
    settle: timedelta
    """Interval for setting the owners of requested jobs; FlytePropeller polls a task every 5 s to 1 h."""

    @classmethod
    def from_scan_interval(cls, look: timedelta) -> "ScanSchedule":
        """Return the intervals for a scan interval; owners are set at least four times between two scans."""
        return cls(look=look, settle=min(_SETTLE, look / 4) if look else _SETTLE)


class OrphanCollector:
    """Deletes orphans and sets missing owners periodically, while `run` is active."""

    def __init__(self, orphanage: OrphanFinder, metrics: Metrics, rhythm: ScanSchedule) -> None:
        self._orphanage = orphanage
        self._metrics = metrics
        self._rhythm = rhythm
        self._asked: dict[_Key, Job] = {}
        """The jobs without a known owner that were requested since owners were last set."""
        self._living: set[_Key] = set()
        """The jobs that were requested since the last scan."""
        self._suspects: frozenset[_Key] = frozenset()

    def mark_in_use(self, job: Job | None) -> None:
        """Record that a client requested a job, which shows that its execution exists in some cluster."""
        if job is not None and ownership.is_owner_unknown(job):
            self._asked[_build_key(job)] = job

    async def run(self) -> None:
        """Set owners of requested jobs and scan for orphans, until cancelled."""
        # Jitter, so that servers that started together do not scan together.
        look = self._rhythm.look * (0.9 + random.random() / 5)  # noqa: S311 - not a secret.
        looking = [_run_periodically(look, self._scan)] if look else []
        await run_until_first_exit(_run_periodically(self._rhythm.settle, self._record_owners), *looking)

    # ---- requested jobs

    async def _record_owners(self) -> None:
        requested, self._asked = self._asked, {}
        self._living |= requested.keys()
        for job in requested.values():
            await self._record_requested_owner(job)

    async def _record_requested_owner(self, job: Job) -> None:
        """Look up the workflow object of a requested job, and record the result on the job."""
        # Before the job can become a candidate, but not for the many jobs that end soon.
        run = ownership.find_orphan_candidate(job, self._orphanage.now(), self._orphanage.least_age / 2)
        if run is None:
            return
        try:
            owner = await self._orphanage.executions.lookup_workflow(job.namespace, run.execution)
        except ClusterUnavailable as trouble:
            log.debug(
                "cannot determine where its execution is: %s",
                trouble,
                extra=log_fields.build_attempt_fields(run, job.name),
            )
            return  # Retried at the next request.
        await self._record_owner(OrphanCandidate(job=job, run=run), owner)

    async def _record_owner(self, suspect: OrphanCandidate, owner: OwnerReference | None) -> None:
        try:
            await self._orphanage.cluster.patch(
                build_job_name(suspect.job), ownership.build_ownership_patch(owner)
            )
        except (RequestRejected, ClusterUnavailable) as trouble:
            self._metrics.cluster_errors.add("record_owner", type(trouble).__name__)
            log.warning("cannot record the owner on the job: %s", trouble, extra=_build_log_fields(suspect))
        else:
            self._metrics.orphans.add("other_cluster" if owner is None else "adopted")

    # ---- jobs without requests

    async def _scan(self) -> None:
        """Delete the orphans that the previous scan also found; the others become candidates for deletion."""
        try:
            result = await self._orphanage.scan()
        except ClusterUnavailable as trouble:
            self._suspects = frozenset()  # Only consecutive scans count.
            self._metrics.cluster_errors.add("scan_orphans", "ClusterUnavailable")
            log.warning("cannot search for orphans; retrying later: %s", trouble)
            return
        for why, jobs in result.unclear.items():
            log.info("cannot determine if %d jobs without an owner are orphans: %s", jobs, why)
        for suspect, owner in result.owned:
            await self._record_owner(suspect, owner)
        living, self._living = self._living | self._asked.keys(), set()
        await self._delete_confirmed([each for each in result.orphans if _build_key(each.job) not in living])

    async def _delete_confirmed(self, unclaimed: Sequence[OrphanCandidate]) -> None:
        """Delete the orphans that the previous scan also found, and remember the others."""
        before, self._suspects = self._suspects, frozenset(_build_key(each.job) for each in unclaimed)
        for suspect in unclaimed:
            if _build_key(suspect.job) in before:
                await self._delete_orphan(suspect)
            else:
                self._metrics.orphans.add("suspected")
                log.info(
                    "its execution does not exist; the next scan checks the job again",
                    extra=_build_log_fields(suspect),
                )

    async def _delete_orphan(self, suspect: OrphanCandidate) -> None:
        try:
            if await self._orphanage.delete_orphan(suspect):
                self._metrics.orphans.add("deleted")
                log.warning(
                    "deleted: its execution no longer exists, and no client requests it",
                    extra=_build_log_fields(suspect),
                )
        except ClusterUnavailable as trouble:
            self._metrics.cluster_errors.add("scan_orphans", "ClusterUnavailable")
            log.warning(
                "cannot delete the job; the next scan checks it again: %s",
                trouble,
                extra=_build_log_fields(suspect),
            )


async def _run_periodically(pause: timedelta, do: Callable[[], Awaitable[None]]) -> NoReturn:
    while True:
        await asyncio.sleep(pause.total_seconds())
        (error,) = await asyncio.gather(do(), return_exceptions=True)
        if error is not None:
            # An unexpected error in this background work must not stop the server.
            log.error("internal error in the search for orphans", exc_info=error)


def _build_key(job: Job) -> _Key:
    return job.namespace, job.name, job.uid


def _build_log_fields(suspect: OrphanCandidate) -> Mapping[str, object]:
    return log_fields.build_attempt_fields(suspect.run, suspect.job.name)

"""Deletes orphans periodically, and sets missing owners of jobs.

A job is an orphan if two consecutive scans do not find the workflow object of its execution, and no client
requested the job in between. After a scan that failed, two further scans are necessary.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, NoReturn

from backend_plugin.core import ownership
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.observed import Job
from backend_plugin.shell.cluster import ClusterUnavailable, ObjectName, build_job_name
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.orphan_finder import OrphanCandidate, OrphanFinder
from backend_plugin.shell.together import run_until_first_exit

log = logging.getLogger(__name__)

_SETTLE: Final = timedelta(seconds=30)
"""The longest interval between two updates of missing owners; FlytePropeller polls a job every 5 s to 1 h."""


class OrphanCollector:
    """While `run` is active, deletes jobs whose Flyte execution is gone, and sets missing owners of jobs."""

    def __init__(
        self, finder: OrphanFinder, metrics: Metrics, look: timedelta, settle: timedelta = _SETTLE
    ) -> None:
        """Create a collector.

        Args:
            finder: The finder of orphans.
            metrics: Counts orphans and errors.
            look: The interval of the scans for orphans; 0 disables them.
            settle: The interval for setting missing owners of jobs that clients have requested. If `look` is
                not 0, the interval is at most `look / 4`. The owner is the workflow object of the execution.
        """
        self._finder = finder
        self._metrics = metrics
        self._look = look
        self._settle = min(settle, look / 4) if look else settle
        self._requested: dict[ObjectName, Job] = {}
        """The jobs without a known owner that clients have requested since owners were last set."""
        self._living: set[ObjectName] = set()
        """The jobs that clients have requested since the last scan."""
        self._suspects: frozenset[ObjectName] = frozenset()

    def mark_in_use(self, job: Job | None) -> None:
        """Record a client's request for a job; it shows that the job's execution exists in some cluster."""
        if job is not None and ownership.is_owner_unknown(job):
            self._requested[build_job_name(job)] = job

    async def run(self) -> None:
        """Periodically set missing owners of jobs, and delete jobs whose execution is gone, until cancelled.

        Owners are set more often for the jobs that `mark_in_use` received.
        """
        # Jitter, so that servers that started together do not scan together.
        look = self._look * (0.9 + random.random() / 5)  # noqa: S311 - not a secret.
        scans = [_run_periodically(look, self._scan)] if look else []
        await run_until_first_exit(_run_periodically(self._settle, self._record_owners), *scans)

    # ---- requested jobs

    async def _record_owners(self) -> None:
        requested, self._requested = self._requested, {}
        self._living |= requested.keys()
        for job in requested.values():
            await self._record_requested_owner(job)

    async def _record_requested_owner(self, job: Job) -> None:
        # Skip the many jobs that end soon: require half of the age that a scan requires.
        run = ownership.find_orphan_candidate(job, self._finder.now(), self._finder.least_age / 2)
        if run is None:
            return
        suspect = OrphanCandidate(job=job, run=run)
        try:
            owner = await self._finder.cluster.lookup_workflow(job.namespace, run.execution)
        except ClusterUnavailable as error:
            log.debug("cannot determine where its execution is: %s", error, extra=suspect.log_fields)
            return  # Retried at the next request.
        await self._record_owner(suspect, owner)

    async def _record_owner(self, suspect: OrphanCandidate, owner: OwnerReference | None) -> None:
        try:
            await self._finder.cluster.patch(
                build_job_name(suspect.job), ownership.build_ownership_patch(owner)
            )
        except (RequestRejected, ClusterUnavailable) as error:
            self._metrics.cluster_errors.add("record_owner", type(error).__name__)
            log.warning("cannot record the owner on the job: %s", error, extra=suspect.log_fields)
        else:
            self._metrics.orphans.add("other_cluster" if owner is None else "adopted")

    # ---- jobs without requests

    async def _scan(self) -> None:
        try:
            result = await self._finder.scan()
        except ClusterUnavailable as error:
            self._suspects = frozenset()  # Only consecutive scans count.
            self._metrics.cluster_errors.add("scan_orphans", "ClusterUnavailable")
            log.warning("cannot search for orphans; retrying later: %s", error)
            return
        for why, jobs in result.unclear.items():
            log.info("cannot determine if %d jobs without an owner are orphans: %s", jobs, why)
        for suspect, owner in result.owned:
            await self._record_owner(suspect, owner)
        living, self._living = self._living | self._requested.keys(), set()
        await self._delete_confirmed(
            [each for each in result.orphans if build_job_name(each.job) not in living]
        )

    async def _delete_confirmed(self, unclaimed: Sequence[OrphanCandidate]) -> None:
        """Delete the jobs in `unclaimed` that the previous scan found, too; store all for the next scan."""
        before, self._suspects = self._suspects, frozenset(build_job_name(each.job) for each in unclaimed)
        for suspect in unclaimed:
            if build_job_name(suspect.job) in before:
                await self._delete_orphan(suspect)
            else:
                self._metrics.orphans.add("suspected")
                message = "its execution does not exist; the next scan checks the job again"
                log.info(message, extra=suspect.log_fields)

    async def _delete_orphan(self, suspect: OrphanCandidate) -> None:
        try:
            if await self._finder.delete_orphan(suspect):
                self._metrics.orphans.add("deleted")
                message = "deleted: its execution no longer exists, and no client requests it"
                log.warning(message, extra=suspect.log_fields)
        except ClusterUnavailable as error:
            self._metrics.cluster_errors.add("scan_orphans", "ClusterUnavailable")
            message = "cannot delete the job; the next scan checks it again: %s"
            log.warning(message, error, extra=suspect.log_fields)


async def _run_periodically(pause: timedelta, do: Callable[[], Awaitable[None]]) -> NoReturn:
    while True:
        await asyncio.sleep(pause.total_seconds())
        (error,) = await asyncio.gather(do(), return_exceptions=True)
        if error is not None:
            # An unexpected error in this background work must not stop the server.
            log.error("internal error in the search for orphans", exc_info=error)

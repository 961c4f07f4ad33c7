"""Finds orphans: jobs whose Flyte execution is gone. Orphan candidates are selected in `core.ownership`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from backend_plugin.core import names, ownership
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import Attempt, OwnerReference
from backend_plugin.core.observed import Job
from backend_plugin.shell.allowlist import Allowlist
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable, build_job_name
from backend_plugin.shell.logging_setup import build_attempt_fields

LEAST_AGE: Final = timedelta(hours=1)
"""The minimum age of orphans. Younger jobs, and jobs that ended more recently, are kept, because users may
inspect them."""


class FlyteCluster(Cluster, Protocol):
    """A cluster that also contains the workflow objects of Flyte executions."""

    async def list_jobs(self) -> Sequence[Job]:
        """List all jobs of this backend from the API server, not a cache; raises `ClusterUnavailable`."""

    async def lookup_workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Fetch the workflow object of an execution from the API server; None if it does not exist.

        Raises:
            ClusterUnavailable: If the lookup fails, for example because the permission for it is missing.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanCandidate:
    """An orphan candidate: a job without an owner, and its attempt."""

    job: Job
    run: Attempt

    @property
    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines about the job."""
        return build_attempt_fields(self.run, self.job.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanScan:
    """The result of one scan for jobs whose execution no longer exists."""

    orphans: Sequence[OrphanCandidate]
    """Candidates whose execution was missing in this scan."""
    owned: Sequence[tuple[OrphanCandidate, OwnerReference]]
    """Candidates whose execution exists, each with the owner to set on the job."""
    unclear: Mapping[str, int]
    """The number of candidates whose execution could not be looked up, by error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFinder:
    """Finds and deletes orphans: jobs whose Flyte execution is gone."""

    cluster: FlyteCluster
    allowed: Allowlist
    """The namespaces that this server serves."""
    now: Callable[[], datetime]
    least_age: timedelta = LEAST_AGE

    async def scan(self) -> OrphanScan:
        """List all jobs, and look up the workflow object of each old job without an owner.

        Raises:
            ClusterUnavailable: If the jobs cannot be listed.
        """
        orphans: list[OrphanCandidate] = []
        owned: list[tuple[OrphanCandidate, OwnerReference]] = []
        unclear: dict[str, int] = {}
        for (namespace, execution), candidates in self._group_by_execution(
            await self.cluster.list_jobs()
        ).items():
            try:
                owner = await self.cluster.lookup_workflow(namespace, execution)
            except ClusterUnavailable as error:
                unclear[str(error)] = unclear.get(str(error), 0) + len(candidates)
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

"""Sets the owner of prerequisites of jobs, and deletes prerequisites without a job.

A prerequisite is an object that is created before its job. If a server is killed, it may leave a prerequisite
without a job.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, NoReturn

from backend_plugin.core import names
from backend_plugin.core.dialects import table
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable
from backend_plugin.shell.logging_setup import build_job_fields

log = logging.getLogger(__name__)

PERIOD: Final = 600.0
"""Seconds between two scans of all prerequisites."""
LEAST_AGE: Final = timedelta(minutes=15)
"""The minimum age of prerequisites to delete. The job of a younger one may be about to be created."""


class Prerequisites:
    """Sets each job as the owner of its prerequisites, and deletes prerequisites that no job needs."""

    def __init__(
        self, cluster: Cluster, cache: Cache, orders: BackgroundOperations, now: Callable[[], datetime]
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._orders = orders
        self._now = now

    async def run(self) -> NoReturn:
        """Call `scan` periodically, until cancelled."""
        await self._cache.ready.wait()
        while True:
            try:
                await self.scan()
            except ClusterUnavailable as error:
                log.info("cannot check the prerequisites of jobs; retrying: %s", error)
            await asyncio.sleep(PERIOD)

    async def scan(self) -> None:
        """Set the job of each prerequisite, such as a TrainingRuntime, as its owner; delete unneeded ones.

        A prerequisite with an owner is kept. One without an owner is unneeded if it has no job and is older
        than `LEAST_AGE`, if its job is being deleted, or if its job is of a kind that does not use it.

        Raises:
            ClusterUnavailable: If the prerequisites cannot be listed.
        """
        for each in await self._cluster.list_prerequisites():
            if not get_mappings(each, "metadata", "ownerReferences"):
                await self._own_or_delete(each)

    async def _own_or_delete(self, prerequisite: Manifest) -> None:
        metadata = get_mapping(prerequisite, "metadata")
        job = self._cache.get_last_record((get_text(metadata, "namespace"), get_text(metadata, "name")))
        if job is None:
            created = get_time(metadata, "creationTimestamp")
            if created is not None and self._now() - created > LEAST_AGE:
                await self._delete(prerequisite)
        elif not job.deleting and _needs(job, prerequisite):
            self.own(job, [prerequisite])
        else:
            await self._delete(prerequisite)

    def own(self, job: Job, prerequisites: Sequence[Manifest]) -> None:
        """Set the job as the owner of its prerequisites, in the background."""
        for each in prerequisites:
            if not _needs(job, each):  # An earlier call has created a job of another dialect.
                continue
            kind, name = get_text(each, "kind"), get_text(each, "metadata", "name")
            self._orders.submit(
                ("own_prerequisite", job.namespace, job.name, kind, name),
                lambda each=each: self._set_owner(job, each),  # type: ignore[misc]
                build_job_fields(job.namespace, job.name),
            )

    async def _set_owner(self, job: Job, prerequisite: Manifest) -> None:
        owner: Manifest = {
            **table.get_dialect(job.dialect).resource.type_meta,
            "name": job.name,
            "uid": job.uid,
            "controller": True,
        }
        await self._cluster.patch_object(prerequisite, {"metadata": {"ownerReferences": [owner]}})

    async def _delete(self, prerequisite: Manifest) -> None:
        metadata = get_mapping(prerequisite, "metadata")
        kind, name = prerequisite["kind"], get_text(metadata, "name")
        label = get_text(metadata, "labels", names.IDENTITY)
        log.info("deleting %s %s, which has no job (%s)", kind, name, label)
        await self._cluster.delete_companion(prerequisite)


def _needs(job: Job, prerequisite: Manifest) -> bool:
    kind = table.get_dialect(job.dialect).prerequisite
    return kind is not None and kind.kind == get_text(prerequisite, "kind")

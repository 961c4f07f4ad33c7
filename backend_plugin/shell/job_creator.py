"""Creates the job of an attempt, after the objects to which the job refers (its prerequisites)."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core import names, rejection, signing
from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import Attempt
from backend_plugin.core.observed import Job
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.capabilities_cache import CapabilitiesCache
from backend_plugin.shell.cluster import AlreadyExists, Cluster, ClusterUnavailable, ObjectName
from backend_plugin.shell.credentials import KeyRing
from backend_plugin.shell.logging_setup import build_attempt_fields

log = logging.getLogger(__name__)

_PREMATURE_SECONDS: Final = 2.0
_PREMATURE_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class JobCreator:
    """Creates jobs in one cluster."""

    cluster: Cluster
    cache: Cache
    found: CapabilitiesCache
    ring: KeyRing

    async def create_or_find(self, planned: Plan, run: Attempt) -> tuple[Manifest, bool, Job | None]:
        """Create the job of a plan, or find the job of an earlier call for the same attempt.

        Returns:
            The manifest of the job; True if this call created the job, else False; and the job as it was in
            the cache before the call, or None.

        Raises:
            InvalidTask: If a job of another attempt has the name of the job.
            RequestRejected: If the cluster rejects the job or a prerequisite.
            ClusterUnavailable: If a request fails, or the job is being deleted.
        """
        manifest = signing.sign_job(planned.job, self.ring.current)
        name = ObjectName(
            namespace=run.namespace, name=get_text(manifest, "metadata", "name"), dialect=planned.dialect
        )
        last = self.cache.get_last_record((name.namespace, name.name))
        if (found := await self._find_in_other_dialects(run, planned.dialect)) is not None:
            existing, last = found
            return self._adopt_job(existing, run, get_text(existing, "metadata", "name")), False, last
        created = await self._create_prerequisites(planned)
        dialect = table.get_dialect(planned.dialect)
        try:
            created_job = await create_job(self.cluster, dialect, manifest)
        except AlreadyExists:
            existing_job = await self.cluster.get(name)
            return self._adopt_job(existing_job, run, name.name), False, last
        except RequestRejected as refused:
            # Admission may reject a second job before the API server finds that the name is taken.
            existing_job = await self.cluster.get(name) if planned.prerequisites else None
            if existing_job is None:
                await self._on_rejection(planned, refused, created)
                raise _add_upgrade(refused, dialect) from refused
            return self._adopt_job(existing_job, run, name.name), False, last
        log.info("created", extra=build_attempt_fields(run, name.name))
        return created_job, True, last

    async def _find_in_other_dialects(self, run: Attempt, dialect: str) -> tuple[Manifest, Job | None] | None:
        """Return the attempt's job of another dialect (kind of job), and its record in the cache.

        Return None if the attempt has no such job. An earlier call may have created the job with other
        settings, or before an operator was installed or removed.
        """
        cached = self._list_cached_names(run)
        for name in dict.fromkeys([*cached, *await self._list_other_names(run, dialect)]):
            if name.dialect == dialect:
                continue
            existing = await self.cluster.get(name)
            if existing is not None and names.has_output_prefix(existing, run.output_prefix):
                return existing, self.cache.get_last_record((name.namespace, name.name))
        return None

    def _list_cached_names(self, run: Attempt) -> Sequence[ObjectName]:
        return [
            entry.object_name
            for entry, known in self.cache.get_attempts(run).items()
            if entry.exists and known.output_prefix == run.output_prefix
        ]

    async def _list_other_names(self, run: Attempt, dialect: str) -> Sequence[ObjectName]:
        capabilities = await self.found.get_capabilities(run.namespace)
        return [
            ObjectName(
                namespace=run.namespace, name=names.job_name(run, each.longest_name), dialect=each.name
            )
            for each in table.DIALECTS.values()
            if each.name != dialect and each.resource.group in (capabilities.apis or ())
        ]

    async def _create_prerequisites(self, planned: Plan) -> Sequence[Manifest]:
        created = []
        for each in planned.prerequisites:
            try:
                await self.cluster.create(each)
                created.append(each)
            except AlreadyExists:
                continue
            except RequestRejected as refused:
                raise _add_upgrade(refused, table.get_dialect(planned.dialect)) from refused
        return created

    async def _on_rejection(
        self, planned: Plan, refused: RequestRejected, created: Sequence[Manifest]
    ) -> None:
        """Delete `created`, the new prerequisites of a job that the cluster rejected.

        Keep them if a quota is exceeded, because a later request may succeed.

        Raises:
            ClusterUnavailable: If a webhook rejected the job because it has not seen a prerequisite yet.
        """
        if planned.prerequisites and table.get_dialect(planned.dialect).is_premature(refused.message):
            raise ClusterUnavailable(f"a webhook has not seen a new object: {refused}") from refused
        if not rejection.is_transient(refused.code, refused.message):
            for each in created:
                await self.cluster.delete_companion(each)

    @staticmethod
    def _adopt_job(existing: Manifest | None, run: Attempt, name: str) -> Manifest:
        """Return `existing`, the job that an earlier call created.

        Raises:
            ClusterUnavailable: If the job does not exist any more, or is being deleted.
            InvalidTask: If the job belongs to another attempt.
        """
        # The job was deleted between the two requests, or is being deleted.
        if existing is None or read_job(existing).deleting:
            raise ClusterUnavailable(f"job {name} is being deleted")
        rejection.require_own_job(run, existing)
        log.info("adopted", extra=build_attempt_fields(run, name))
        return existing


def _add_upgrade(refused: RequestRejected, dialect: Dialect) -> RequestRejected:
    return RequestRejected(refused.code, refused.reason, rejection.add_upgrade(refused.message, dialect))


async def create_job(cluster: Cluster, dialect: Dialect, manifest: Manifest) -> Manifest:
    """Create a job, and return it.

    A webhook of the operator or of Kueue may reject the job because it has not observed the runtime of the
    job yet. In this case, retry for `_PREMATURE_SECONDS`, then raise the rejection.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _PREMATURE_SECONDS
    while True:
        try:
            return await cluster.create(manifest)
        except RequestRejected as refused:
            if not dialect.is_premature(refused.message) or loop.time() >= end:
                raise
        await asyncio.sleep(_PREMATURE_PAUSE)

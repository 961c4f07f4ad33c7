"""Deletes jobs: for calls of Flyte, for the reconciler, and when a later attempt replaces an earlier one."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from backend_plugin.core import names
from backend_plugin.core.errors import AttemptSuperseded
from backend_plugin.core.job import Attempt, JobRef
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.shell.background_operations import DELETE_JOB, BackgroundOperations
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cluster import Cluster, NotDurable, ObjectName
from backend_plugin.shell.logging_setup import build_job_fields

log = logging.getLogger(__name__)

DELETE_CALL: Final = 1.0
"""Seconds for which a DeleteTask call waits for the deletion, which then continues in the background."""
LEAVING: Final = (0.1, 0.4, 1.5, 4.0, 9.0, 15.0)
"""Seconds before each check whether a deleted job is gone. The last check logs the finalizers of the job."""


class JobDeleter:
    """Deletes jobs in the background, and only jobs with the expected output prefix."""

    def __init__(self, cluster: Cluster, cache: Cache, orders: BackgroundOperations, seconds: float) -> None:
        """Create a deleter that submits its background operations to `orders`.

        After a deletion, check for 30 s at growing intervals (`LEAVING`) if the job is gone, then every
        `seconds` s.
        """
        self._cluster = cluster
        self._cache = cache
        self._orders = orders
        self._seconds = seconds

    async def delete(self, ref: JobRef) -> None:
        """Start to delete a job; return when the cluster accepts the deletion, or after `DELETE_CALL` s.

        Raises:
            NotDurable: If the cluster cannot save the change, for example because a disk is full. The server
                retries it in the background, but a restart of the server loses the deletion.
        """
        order = self._schedule_delete(
            ObjectName(namespace=ref.namespace, name=ref.name, uid=ref.uid, dialect=ref.dialect),
            ref.output_prefix,
        )
        await asyncio.wait([order], timeout=DELETE_CALL)
        if isinstance(error := self._orders.find_error(order), NotDurable):
            raise error

    def delete_superseded(self, run: Attempt) -> None:
        """Delete the jobs of earlier attempts of the same Flyte node.

        Raises:
            AttemptSuperseded: If the node has a later attempt than `run`. If FlytePropeller still requests
                `run`, this error makes FlytePropeller start the next attempts, up to the later one.
        """
        known = self._cache.get_attempts(run)
        for entry, other in known.items():
            if entry.exists and other.attempt < run.attempt:
                self._schedule_delete(entry.object_name, other.output_prefix)
        for other in known.values():
            if run.attempt < other.attempt:
                raise AttemptSuperseded(
                    f"attempt {run.attempt} of {run.execution}/{run.node_id} is over: "
                    f"attempt {other.attempt} has begun"
                )

    def _schedule_delete(self, name: ObjectName, output_prefix: str) -> "asyncio.Task[None]":
        return self._orders.submit(
            (DELETE_JOB, name, output_prefix),
            lambda: self.delete_own(name, output_prefix, awaited=True),
            build_job_fields(name.namespace, name.name),
        )

    async def delete_own(self, name: ObjectName, output_prefix: str, *, awaited: bool = False) -> None:
        """Delete the job if its label and annotation match the output prefix.

        Without `awaited`, the request may be delayed, as no caller waits for it.
        """
        manifest = await self._cluster.get(name)
        if manifest is None:
            return
        if not names.has_output_prefix(manifest, output_prefix):
            log.warning("not deleted: the job belongs to another attempt or another owner")
            return
        uid = get_text(manifest, "metadata", "uid") or None
        name = replace(name, uid=uid)
        await self._cluster.delete(name, awaited=awaited)
        log.info("deleted")
        if not self._is_gone(name):
            self._orders.submit(
                ("await_removal", name),
                lambda: self._await_removal(name),
                build_job_fields(name.namespace, name.name),
            )

    async def _await_removal(self, name: ObjectName) -> None:
        """Wait until a deleted job is gone; log its finalizers if it still exists after 30 s (`LEAVING`)."""
        for pause in LEAVING:
            await asyncio.sleep(pause)
            if self._is_gone(name):
                return
        # The watch may have missed the deletion, and its records have no finalizers.
        manifest = await self._cluster.get(name)
        if manifest is None:
            return
        finalizers = get_mapping(manifest, "metadata").get("finalizers")
        keeps = ", ".join(map(str, finalizers)) if finalizers and isinstance(finalizers, Sequence) else "none"
        log.warning("deleted %g s ago, but still present; its finalizers: %s", sum(LEAVING), keeps)
        while self._cache.get((name.namespace, name.name)) is not None and not self._is_gone(name):
            await asyncio.sleep(self._seconds)

    def _is_gone(self, name: ObjectName) -> bool:
        """True if the cache shows this job as gone or replaced; False also if it is not in the cache."""
        entry = self._cache.get((name.namespace, name.name))
        if entry is None:
            return False
        return entry.gone is not None or (entry.job is not None and entry.job.uid != name.uid)

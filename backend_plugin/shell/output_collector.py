"""Collects the outputs of ended jobs, so that a terminal phase is only reported after they have been read.

If no cached Kubernetes object explains a failure, the pods of the job are fetched from the API server, too.
The object store is read in `output_reader`.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from msgspec import structs

from backend_plugin.core import cleanup, names
from backend_plugin.core.observed import Pod
from backend_plugin.core.pipeline import has_unobserved_termination
from backend_plugin.core.signing import is_job_authentic
from backend_plugin.shell.background_operations import BackgroundOperations, Order
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable, build_pod_name
from backend_plugin.shell.credentials import KeyRing
from backend_plugin.shell.output_prefixes import PrefixNotAllowed
from backend_plugin.shell.output_reader import OutputReader, TaskOutputs
from backend_plugin.shell.output_stores import StoreUnavailable, StoreUnusable

log = logging.getLogger(__name__)

READ_PAUSES: Final = (0.0, 0.5, 1.5)
"""Pauses in seconds before each read, until a file is found: some stores list a new file late."""
PATIENCE: Final = 60.0
"""Seconds to retry a store that does not respond; then only the cluster's objects determine the phase."""
_PAUSE: Final = 2.0
_UNREAD: Final = TaskOutputs(outputs=None)
_NOT_READ: Final = "outputs and error files are not read: the job is not signed with the keys of this server"


class OutputCollector:
    """Collects the task outputs for all jobs of a server."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        outcomes: OutputReader,
        orders: BackgroundOperations,
        ring: KeyRing,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._outcomes = outcomes
        self.orders = orders
        self._ring = ring
        # Cancel the read for a job that leaves the cache; thousands may wait for a slow store.
        cache.removal_listeners.append(lambda entry: orders.cancel(("read_outputs", entry)))

    def on_change(self, entry: CachedJob) -> None:
        """Start to read the outputs of a job if it has ended and they have not been read."""
        if entry.read or entry.reading_outputs or not cleanup.is_finished(entry.get_observed_state()):
            return
        prefix = entry.output_prefix
        if prefix and not prefix.startswith(names.NO_OUTPUTS):
            self._start_read(entry, prefix)

    def _start_read(self, entry: CachedJob, prefix: str) -> None:
        if not self._is_authentic(entry):
            log.warning(_NOT_READ, extra=entry.log_fields)
            self._set_outputs(entry, _UNREAD)
            return
        entry.reading_outputs = True
        # The key is the entry, because a later job of the same name has an entry of its own.
        self.orders.submit(("read_outputs", entry), self._build_operation(entry, prefix), entry.log_fields)

    def _is_authentic(self, entry: CachedJob) -> bool:
        """True if a key of this server signed the job, or if the job no longer exists.

        For a job that no longer exists, the server has already verified the signature of the job reference
        that Flyte sends with each GetTask call.
        """
        job = entry.job
        return job is None or is_job_authentic(entry.namespace, job.name, job.annotations, self._ring.current)

    def _build_operation(self, entry: CachedJob, prefix: str) -> Order:
        """Return the background operation that reads the outputs of a job, and stores them in the cache.

        If the operation is retried because the API server was unavailable, it does not read the store again.
        """
        task_outputs: TaskOutputs | None = None

        async def read_outputs() -> None:
            nonlocal task_outputs
            is_repeated = False
            try:
                if task_outputs is None:
                    task_outputs = await self._poll_outputs(prefix)
                await self._fetch_unobserved_pods(entry, task_outputs)
            except (ClusterUnavailable, asyncio.CancelledError):
                is_repeated = True  # If this server stops, the next one repeats it.
                raise
            finally:  # In any case set the outputs, or Flyte would wait forever.
                if not is_repeated:
                    self._set_outputs(entry, _UNREAD if task_outputs is None else task_outputs)

        return read_outputs

    def _set_outputs(self, entry: CachedJob, task_outputs: TaskOutputs) -> None:
        self._cache.set_task_outputs(entry, task_outputs.error_files, outputs=task_outputs.outputs)

    async def _fetch_unobserved_pods(self, entry: CachedJob, task_outputs: TaskOutputs) -> None:
        """Fetch the pods of a failed job if no cached object explains its failure."""
        if not _has_unobserved_termination(entry, task_outputs):
            return
        await self._cache.ready.wait()
        if not _has_unobserved_termination(entry, task_outputs):
            return
        before = {pod.name: pod for pod in entry.pods}
        fetched = await self._cluster.list_pods(entry.object_name)
        # A new job of the same name has another entry, and must not get these pods.
        if fetched is not None and self._cache.get(entry.key) is entry:
            self._merge_pods(entry, before, {pod.name: pod for pod in fetched})

    def _merge_pods(self, entry: CachedJob, before: Mapping[str, Pod], fetched: Mapping[str, Pod]) -> None:
        """Replace cached pods by `fetched` pods, except pods that the watch has changed since `before`."""
        now = {pod.name: pod for pod in entry.pods}
        for name in {**before, **fetched}:
            if now.get(name) is not before.get(name):
                continue
            if name in fetched:
                self._cache.put_record(entry.namespace, fetched[name])
            elif not before[name].place:  # Placeholders are not listed.
                self._cache.drop_record(Pod, build_pod_name(entry.namespace, before[name]))

    async def _poll_outputs(self, prefix: str) -> TaskOutputs:
        task_outputs = _UNREAD
        for pause in READ_PAUSES:
            await asyncio.sleep(pause)
            task_outputs = await self._read_with_retries(prefix)
            if task_outputs.error_files or task_outputs.outputs is not False:
                break
        if task_outputs.more:
            log.warning("%d more error files are not read", task_outputs.more)
        return task_outputs

    async def _read_with_retries(self, prefix: str) -> TaskOutputs:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self._outcomes.read_outputs(prefix)
            except PrefixNotAllowed as error:
                log.warning("outputs and error files of a task are not read: %s", error)
                return _UNREAD
            except StoreUnusable as error:
                log.error("outputs and error files cannot be read: %s", error)  # noqa: TRY400 - no traceback.
                return _UNREAD
            except StoreUnavailable as error:
                log.warning("retrying to read the store: %s", error)
                if asyncio.get_running_loop().time() > deadline:
                    return _UNREAD
            await asyncio.sleep(_PAUSE)


def _has_unobserved_termination(entry: CachedJob, task_outputs: TaskOutputs) -> bool:
    files, outputs = task_outputs.error_files, task_outputs.outputs
    return has_unobserved_termination(
        structs.replace(entry.get_observed_state(), error_files=files, outputs=outputs)
    )

"""Performs the API requests that `core.cleanup` has planned for a job whose phase is terminal.

Several servers observe the same failure. The first one stores its verdict (reason, message and cause) in an
annotation of the job. Only that server counts the failure in its metrics.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.cleanup import CleanupActions
from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.judging.verdict_annotation import ANNOTATION, read
from backend_plugin.core.observed import Pod, PodGroup
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling import registry
from backend_plugin.core.values import Manifest
from backend_plugin.shell.background_operations import Order
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, Misconfigured, ObjectName, VersionConflict, build_pod_name
from backend_plugin.shell.job_deleter import JobDeleter
from backend_plugin.shell.metrics import Metrics

log = logging.getLogger(__name__)

_TRIES: Final = 5
"""The number of tries to store a verdict while other clients change the job."""


@dataclass(frozen=True, slots=True)
class VerdictStore:
    """Stores verdicts (reason, message, cause) in annotations of failed jobs, and counts the failures."""

    cluster: Cluster
    metrics: Metrics

    async def store(self, name: ObjectName, patch: Manifest, *, awaited: bool = False) -> bool:
        """Apply `patch`, which annotates a failed job with its verdict, unless the job already has a verdict.

        The requests may be delayed, unless `awaited` is true because a caller waits for them.

        Returns:
            True if the job now has the verdict of `patch`; False if it has another verdict or does not exist.

        Raises:
            VersionConflict: If, in each of `_TRIES` tries, another client changed the job before the patch.
        """
        verdict = _get_verdict(patch)
        for _ in range(_TRIES):
            job = await self.cluster.get(name, awaited=awaited)
            if job is None:
                return False
            if stored := _get_verdict(job):
                # The response to an earlier patch may have been lost.
                return stored == verdict and self._count(verdict)
            version = get_mapping(job, "metadata").get("resourceVersion")
            metadata = {**get_mapping(patch, "metadata"), "resourceVersion": version}
            try:
                await self.cluster.patch(name, {**patch, "metadata": metadata}, awaited=awaited)
            except VersionConflict:
                continue
            return self._count(verdict)
        raise VersionConflict(f"job {name.name} was changed {_TRIES} times while its verdict was stored")

    def _count(self, verdict: str) -> bool:
        if (kept := read(verdict)) is not None:
            self.metrics.failures.add(kept.cause.value)
        return True


def _get_verdict(manifest: Manifest) -> str:
    return get_text(manifest, "metadata", "annotations", ANNOTATION)


class JobCleaner:
    """Stores the verdict (phase and reason) in a job, ends or deletes it, and stops or deletes its pods."""

    def __init__(self, cluster: Cluster, deleter: JobDeleter, verdicts: VerdictStore) -> None:
        self._cluster = cluster
        self._deleter = deleter
        self._verdicts = verdicts

    def build_operation(self, entry: CachedJob, actions: CleanupActions) -> Order:
        """Return the background operation that performs `actions`.

        A retry of the operation does not store the verdict on the job again.
        """
        patch = actions.patch

        async def clean_up() -> None:
            nonlocal patch
            if patch is not None:
                log.debug("storing the failure on the job", extra=entry.log_fields)
                await self._verdicts.store(entry.object_name, patch)
                patch = None  # A second call would count the failure again.
            await self._end_job(entry, actions)

        return clean_up

    async def _end_job(self, entry: CachedJob, actions: CleanupActions) -> None:
        """Perform `actions` except storing the verdict: delete or end the job, stop or delete its pods."""
        name = entry.object_name
        if actions.delete:
            reason = "which failed before it started or is over its time to live"
            log.info("deleting the job, %s", reason, extra=entry.log_fields)
            await self._deleter.delete_own(name, entry.output_prefix)
        for group in actions.groups:
            await self._deactivate_group(entry, group)
        if actions.ends or not await self._stop_pods(entry, actions.stops):
            log.info("ending the job", extra=entry.log_fields)
            await self._cluster.patch(name, {"spec": get_dialect(name.dialect).end_spec})
        for pod in actions.pods:
            log.info("deleting pod %s, which is left over from the job", pod.name, extra=entry.log_fields)
            await self._cluster.delete_pod(build_pod_name(entry.namespace, pod))

    async def _deactivate_group(self, entry: CachedJob, group: PodGroup) -> None:
        """Change a pod group so that its queue does not resume the job."""
        patch = registry.get_deactivation(group)
        if patch is None:
            return
        log.info("deactivating its %s", group.kind, extra=entry.log_fields)
        name = group.object_name or group.name
        await self._cluster.patch_object(
            {
                "apiVersion": f"{group.api}/{group.version}",
                "kind": group.kind,
                "metadata": {"namespace": entry.namespace, "name": name, "uid": group.uid},
            },
            patch,
        )

    async def _stop_pods(self, entry: CachedJob, pods: Sequence[Pod]) -> bool:
        """End pods, but keep them for their logs. Return True if the cluster permits that, else False."""
        for pod in pods:
            if pod.uid in entry.stopped:
                continue
            log.info("stopping pod %s of the cancelled job", pod.name, extra=entry.log_fields)
            try:
                await self._cluster.stop_pod(build_pod_name(entry.namespace, pod))
            except (Misconfigured, RequestRejected) as error:
                log.warning("cannot keep the log of pod %s: %s", pod.name, error, extra=entry.log_fields)
                return False
            entry.stopped |= {pod.uid}
        return True

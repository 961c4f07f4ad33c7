"""Stores the verdict on a failed job (phase, reason, message and cause) in an annotation of the job.

Several servers observe the same failure. The first one stores its verdict, and only that server counts the
failure in its metrics.
"""

from dataclasses import dataclass
from typing import Final

from backend_plugin.core.judging.verdict_annotation import ANNOTATION, read
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.shell.cluster import Cluster, ObjectName, VersionConflict
from backend_plugin.shell.metrics import Metrics

_TRIES: Final = 5
"""The number of tries to store a verdict while other clients change the job."""


@dataclass(frozen=True, slots=True)
class VerdictStore:
    """Stores verdicts (phase, reason and cause) in the annotations of failed jobs, and counts them."""

    cluster: Cluster
    metrics: Metrics

    async def store(self, name: ObjectName, patch: Manifest, *, awaited: bool = False) -> bool:
        """Apply `patch`, which annotates a failed job with its verdict (reason and cause), unless it has one.

        The requests may be delayed, unless `awaited` is true because a caller waits for them.

        Returns:
            True if the job now has the verdict of `patch`; False if it has another or does not exist.

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

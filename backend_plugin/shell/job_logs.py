"""The merged log of the selected replicas of one job."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from backend_plugin.core import job_lookup
from backend_plugin.core.observed import Job, Pod
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, LogLine, LogRequest, build_pod_name
from backend_plugin.shell.log_merge import LogMerge, ReplicaLine

# Seconds between scans for new pods, and seconds to wait for the next line of each followed log.
_RECHECK_SECONDS: Final = 0.5
_PATIENCE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The selection of log lines of a job."""

    replicas: Collection[str]
    mark: str = ""
    """The prefix of the selected lines, such as ``[r3]`` for rank 3; empty: all lines are selected."""
    follow: bool = False
    tail: int | None = None
    previous: bool = False


def select_replicas(
    job: Job, *, rank: int | None, replica: str | None, node: int | None
) -> tuple[Collection[str], str]:
    """Return the names of the selected replicas, and the prefix of the selected lines (empty: all lines).

    Raises:
        RankNotFound: If the job has no such rank, replica or node.
    """
    chosen = {*job_lookup.list_replicas(job), *job_lookup.list_initializers(job)}
    if replica is not None:
        chosen &= {job_lookup.require_replica(job, replica)}
    if node is not None:
        chosen &= {job_lookup.require_node(job, node)}
    if rank is None:
        return chosen, ""
    prefix = f"[r{rank}] " if _has_several_ranks(job) else ""
    return chosen & job_lookup.list_replicas_with_rank(job, rank), prefix


def _has_several_ranks(job: Job) -> bool:
    """True if a replica of the job may have several ranks."""
    return job.elastic or (job.nproc_per_node or 1) > 1


async def iter_lines(
    entry: CachedJob, cluster: Cluster, selection: LogSelection, is_over: Callable[[], bool]
) -> AsyncGenerator[list[ReplicaLine], None]:
    """Yield batches of lines ordered by time; with `selection.follow`, until `is_over` returns True.

    Raises:
        ClusterUnavailable: If the cluster does not respond.
    """
    merge = LogMerge(_PATIENCE if selection.follow else None)
    finding = asyncio.create_task(_add_sources(entry, cluster, selection, is_over, merge))
    try:
        async with aclosing(merge.iter_batches()) as batches:
            async for batch in batches:
                chosen = [item for item in batch if item.line.text.startswith(selection.mark)]
                if chosen:
                    yield chosen
        await finding
    finally:
        finding.cancel()
        await asyncio.gather(finding, return_exceptions=True)


async def _add_sources(
    entry: CachedJob, cluster: Cluster, selection: LogSelection, is_over: Callable[[], bool], merge: LogMerge
) -> None:
    """Add the log of each selected replica to `merge` as soon as its container has started.

    With `selection.follow`, stop when `is_over` returns True, because the job has ended; otherwise, add only
    the replicas that have started now.
    """
    known: set[str] = set()
    over = False
    try:
        while not over:
            over = not selection.follow or is_over()
            for pod in entry.replicas:
                is_started = pod.primary is not None and pod.primary.has_started
                key = pod.uid or pod.name
                if is_started and pod.replica in selection.replicas and key not in known:
                    known.add(key)
                    merge.add_source(pod.replica, _open_log(pod, entry.namespace, cluster, selection))
            if not over:
                await asyncio.sleep(_RECHECK_SECONDS)
    finally:
        merge.mark_complete()


def _open_log(pod: Pod, namespace: str, cluster: Cluster, selection: LogSelection) -> AsyncIterator[LogLine]:
    container = pod.primary
    request = LogRequest(
        container=container.name if container else pod.trainer,
        follow=selection.follow,
        tail=selection.tail,
        previous=selection.previous,
    )
    return cluster.read_log(build_pod_name(namespace, pod), request)

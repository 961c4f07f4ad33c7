"""The merged log of the selected replicas of one job."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing
from functools import partial
from typing import Final

from backend_plugin.core import job_lookup
from backend_plugin.core.observed import Job, Pod
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, LogLine, LogRequest, build_pod_name
from backend_plugin.shell.log_merge import LogMerge, ReplicaLine
from kfpytorch_idl.v1 import job_service_pb2 as wire

# Seconds between scans for new pods, and seconds to wait for the next line of each followed log.
_RECHECK_SECONDS: Final = 0.5
_PATIENCE: Final = 0.1


async def iter_lines(
    entry: CachedJob, job: Job, cluster: Cluster, request: wire.ReadLogsRequest, is_over: Callable[[], bool]
) -> AsyncGenerator[list[ReplicaLine], None]:
    """Yield batches of log lines, ordered by time; with `request.follow`, until `is_over` returns True.

    Raises:
        RankNotFound: If the job does not have the rank, replica or node of the request.
        ClusterUnavailable: If the cluster does not respond.
    """
    replicas, prefix = _select_replicas(job, request)
    merge = LogMerge(_PATIENCE if request.follow else None)
    open_log = partial(_open_log, entry.namespace, cluster, request)
    adding = _add_sources(entry, replicas, open_log, merge, is_over if request.follow else lambda: True)
    finding = asyncio.create_task(adding)
    try:
        async with aclosing(merge.iter_batches()) as batches:
            async for batch in batches:
                chosen = [item for item in batch if item.line.text.startswith(prefix)]
                if chosen:
                    yield chosen
        await finding
    finally:
        finding.cancel()
        await asyncio.gather(finding, return_exceptions=True)


def _select_replicas(job: Job, request: wire.ReadLogsRequest) -> tuple[Collection[str], str]:
    """Return the names of the replicas that `request` selects, and the prefix of their selected log lines.

    If the prefix is empty, all lines are selected.
    """
    chosen = {*job_lookup.list_replicas(job), *job_lookup.list_initializers(job)}
    if request.HasField("replica"):
        chosen &= {job_lookup.require_replica(job, request.replica)}
    if request.HasField("node"):
        chosen &= {job_lookup.require_node(job, request.node)}
    if not request.HasField("rank"):
        return chosen, ""
    has_several_ranks = job.elastic or (job.nproc_per_node or 1) != 1
    prefix = f"[r{request.rank}] " if has_several_ranks else ""
    return chosen & job_lookup.list_replicas_with_rank(job, request.rank), prefix


async def _add_sources(
    entry: CachedJob,
    replicas: Collection[str],
    open_log: Callable[[Pod], AsyncIterator[LogLine]],
    merge: LogMerge,
    is_over: Callable[[], bool],
) -> None:
    """Add the log of each selected replica to `merge` as soon as its container has started.

    Stop when `is_over` returns True.
    """
    known: set[str] = set()
    over = False
    try:
        while not over:
            over = is_over()
            for pod in entry.replicas:
                is_started = pod.primary is not None and pod.primary.has_started
                key = pod.uid or pod.name
                if is_started and pod.replica in replicas and key not in known:
                    known.add(key)
                    merge.add_source(pod.replica, open_log(pod))
            if not over:
                await asyncio.sleep(_RECHECK_SECONDS)
    finally:
        merge.mark_complete()


def _open_log(
    namespace: str, cluster: Cluster, request: wire.ReadLogsRequest, pod: Pod
) -> AsyncIterator[LogLine]:
    selection = LogRequest(
        container=pod.primary.name if pod.primary else pod.trainer,
        follow=request.follow,
        tail=request.tail if request.HasField("tail") else None,
        previous=request.previous,
    )
    return cluster.read_log(build_pod_name(namespace, pod), selection)

"""The gRPC service `kfpytorch_idl.v1.JobService`, and the handlers of all services for user commands."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc

from backend_plugin.core import cleanup, foreign_jobs, job_lookup
from backend_plugin.core.errors import BackendError
from backend_plugin.core.judging import job_events
from backend_plugin.core.observed import Job
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.shell import job_encoding, job_logs, job_watch
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable, build_job_name
from backend_plugin.shell.job_cleaner import VerdictStore
from backend_plugin.shell.judge import Judge
from backend_plugin.shell.node_service import NodeService
from backend_plugin.shell.rpc_handlers import build_stream_handler, build_unary_handler
from backend_plugin.shell.runtime_service import RuntimeService
from kfpytorch_idl.v1 import job_service_pb2 as wire

log = logging.getLogger(__name__)

JOB_SERVICE: Final = wire.DESCRIPTOR.services_by_name["JobService"].full_name
RUNTIME_SERVICE: Final = wire.DESCRIPTOR.services_by_name["RuntimeService"].full_name
NODE_SERVICE: Final = wire.DESCRIPTOR.services_by_name["NodeService"].full_name
_READY_SECONDS: Final = 3.0
"""The time in seconds that a call waits for the first lists of jobs and pods after the server's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobService:
    """The gRPC service ``JobService``: lists, watches and cancels jobs, and reads their logs.

    Each call raises `ClusterUnavailable` while the jobs of the cluster are not listed.
    """

    cache: Cache
    judge: Judge
    cluster: Cluster
    verdicts: VerdictStore
    serves: Callable[[str], bool] = lambda _: True
    """Returns True for each namespace with jobs that clients may see and cancel."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lock that calls hold for each batch of jobs, so that the batches of several calls alternate."""

    # ---- queries

    async def list_jobs(self, request: wire.ListJobsRequest) -> AsyncGenerator[wire.ListJobsResponse, None]:
        """Yield the jobs that match the request in batches, the newest first."""
        await self.cache.wait_until_ready(_READY_SECONDS)
        selected: list[CachedJob | Job] = [entry for entry in self.cache if self._is_selected(entry, request)]
        if request.include_foreign:
            foreign = await self.cluster.list_foreign_jobs()
            selected += [job for job in foreign if self._is_shown(job.namespace, request)]
        newest_first = sorted(selected, key=job_watch.get_age_key, reverse=True)
        encode = partial(_encode_any, self._select_encoder(request))
        omitted = job_watch.ENDS if request.active_only else ()
        async for jobs in job_watch.iter_batches(self.turn, newest_first, encode):
            yield wire.ListJobsResponse(jobs=[job for job in jobs if job.verdict.phase not in omitted])

    async def get_job(self, request: wire.GetJobRequest) -> wire.Job:
        """Return one job with its replicas and events."""
        return self._encode_job(await self._find_entry(request))

    async def watch_jobs(self, request: wire.WatchJobsRequest) -> AsyncGenerator[wire.JobChange, None]:
        """Yield the jobs that match the request, then every change; for a single job, until it has ended."""
        if request.HasField("name"):
            changes = job_watch.watch_one_job(await self._find_entry(request), self.cache, self._encode_job)
        else:
            await self.cache.wait_until_ready(_READY_SECONDS)
            watched = job_watch.JobWatch(
                cache=self.cache,
                belongs=lambda entry: self._is_selected(entry, request),
                encode=self._select_encoder(request),
                active_only=request.active_only,
                turn=self.turn,
            )
            changes = job_watch.watch_jobs(watched)
        async with aclosing(changes):
            async for change in changes:
                yield change

    async def read_logs(self, request: wire.ReadLogsRequest) -> AsyncGenerator[wire.LogLines, None]:
        """Yield log lines of the replicas of a job."""
        entry = await self._find_entry(request)
        job = _require_job(entry)
        batches = job_logs.iter_lines(entry, job, self.cluster, request, lambda: self._is_finished(entry))
        async with aclosing(batches):
            async for batch in batches:
                lines = (wire.LogLine(replica=name, time=line.time, text=line.text) for name, line in batch)
                yield wire.LogLines(lines=lines)

    # ---- changes

    async def cancel_job(self, request: wire.CancelJobRequest) -> wire.CancelJobResponse:
        """End a job permanently, and store the reason of the request in an annotation of the job."""
        entry = await self._find_entry(request)
        job = _require_job(entry)
        now, before = self.judge.now(), self._encode_job(entry)
        actions = cleanup.plan_cancellation(entry.get_observed_state(), request.reason, now)
        name = build_job_name(job)
        phase = before.verdict.phase
        if actions.patch is None or not await self.verdicts.store(name, actions.patch, awaited=True):
            return wire.CancelJobResponse(job=before, already_finished=True, phase_before=phase)
        verdict = cleanup.build_cancellation(request.reason)
        # The operator's own event does not contain the reason: it reports a failed replica or a deadline.
        try:
            await self.cluster.record_event(
                job_events.build_event(job, verdict.reason, verdict.message, now, since=now)
            )
        except BackendError as error:
            log.info("the event on the cancelled job %s is not written: %s", job.name, error)
        # Do not judge the cached job, because the watch may not have delivered the patch yet.
        after = job_encoding.encode_job(job, entry.get_observed_state(), verdict)
        return wire.CancelJobResponse(job=after, phase_before=phase)

    # ---- helpers

    async def _find_entry(
        self,
        request: wire.GetJobRequest | wire.WatchJobsRequest | wire.ReadLogsRequest | wire.CancelJobRequest,
    ) -> CachedJob:
        """Return the cached job of this backend that the request names; see `job_lookup.find_job`.

        Raise `ForeignJob` if only a job that this backend did not create has the name, and
        `ClusterUnavailable` if jobs cannot be listed.
        """
        await self.cache.wait_until_ready(_READY_SECONDS)
        word = f"{request.namespace}/{request.name}" if request.HasField("namespace") else request.name
        visible = [entry for entry in self.cache if entry.job is not None and self.serves(entry.namespace)]
        try:
            return job_lookup.find_job(word, visible)
        except job_lookup.JobNotFound as error:
            if foreign := await self._find_foreign_job(word):
                raise foreign_jobs.ForeignJob(foreign_jobs.format_refusal(foreign)) from error
            if failures := self.cache.describe_failures():  # The job may be of a kind that is not listed.
                raise job_lookup.JobNotFound(f"{error}; {failures}") from error
            raise

    async def _find_foreign_job(self, word: str) -> Job | None:
        """Return another client's job with the name `word`; None if none exists or jobs cannot be listed."""
        namespace, _, name = word.rpartition("/")
        if name_rules.check_subdomain(name):
            return None
        try:
            jobs = await self.cluster.list_foreign_jobs(name)
        except ClusterUnavailable as error:
            log.info("cannot search for a foreign job %s: %s", name, error)
            return None
        return next(
            (job for job in jobs if self.serves(job.namespace) and namespace in ("", job.namespace)), None
        )

    def _is_selected(self, entry: CachedJob, request: wire.ListJobsRequest | wire.WatchJobsRequest) -> bool:
        return entry.exists and self._is_shown(entry.namespace, request)

    def _is_shown(self, namespace: str, request: wire.ListJobsRequest | wire.WatchJobsRequest) -> bool:
        named = not request.HasField("namespace") or namespace == request.namespace
        return named and self.serves(namespace)

    def _select_encoder(self, request: wire.ListJobsRequest | wire.WatchJobsRequest) -> job_watch.JobEncoder:
        return self._encode_job if request.details else self._encode_summary

    def _encode_summary(self, entry: CachedJob) -> wire.Job:
        return job_encoding.encode_summary(_require_job(entry), self.judge.judge_entry(entry))

    def _encode_job(self, entry: CachedJob) -> wire.Job:
        return job_encoding.encode_job(
            _require_job(entry), entry.get_observed_state(), self.judge.judge_entry(entry)
        )

    def _is_finished(self, entry: CachedJob) -> bool:
        forgotten = self.cache.get(entry.key) is not entry
        return forgotten or self.judge.judge_entry(entry).phase.is_terminal


def _encode_any(encode: job_watch.JobEncoder, job: CachedJob | Job) -> wire.Job:
    return job_encoding.encode_foreign_job(job) if isinstance(job, Job) else encode(job)


def _require_job(entry: CachedJob) -> Job:
    assert entry.job is not None, "entries without a job are never selected"  # noqa: S101 - for mypy.
    return entry.job


def build_handlers(
    jobs: JobService, runtimes: RuntimeService, nodes: NodeService | None
) -> "list[grpc.GenericRpcHandler[Any, Any]]":
    """Return the gRPC handlers of the job and runtime services, and of the node service if there is one."""
    job_methods = {
        "ListJobs": build_stream_handler(jobs.list_jobs, wire.ListJobsRequest),
        "GetJob": build_unary_handler(jobs.get_job, wire.GetJobRequest),
        "WatchJobs": build_stream_handler(jobs.watch_jobs, wire.WatchJobsRequest),
        "ReadLogs": build_stream_handler(jobs.read_logs, wire.ReadLogsRequest),
        "CancelJob": build_unary_handler(jobs.cancel_job, wire.CancelJobRequest),
    }
    runtime_methods = {
        "ListRuntimes": build_unary_handler(runtimes.list_runtimes, wire.ListRuntimesRequest),
        "GetRuntimePackages": build_unary_handler(
            runtimes.get_runtime_packages, wire.GetRuntimePackagesRequest
        ),
    }
    handlers = [
        grpc.method_handlers_generic_handler(JOB_SERVICE, job_methods),
        grpc.method_handlers_generic_handler(RUNTIME_SERVICE, runtime_methods),
    ]
    if nodes is not None:
        node_methods = {
            "ListNodes": build_unary_handler(nodes.list_nodes, wire.ListNodesRequest),
            "SetNodeState": build_unary_handler(nodes.set_node_state, wire.SetNodeStateRequest),
        }
        handlers.append(grpc.method_handlers_generic_handler(NODE_SERVICE, node_methods))
    return handlers

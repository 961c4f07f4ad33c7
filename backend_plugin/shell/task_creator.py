"""Plans the job of a valid task, and creates it with its companion objects, such as a pod group."""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core import rejection, schema_check
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import AttemptSuperseded, InvalidTask, RequestRejected
from backend_plugin.core.job import Attempt, JobRef, OwnerReference
from backend_plugin.core.observed import Job
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import Plan
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.capabilities_cache import CapabilitiesCache
from backend_plugin.shell.cluster import Cluster, Misconfigured
from backend_plugin.shell.create_request import CreateRequest
from backend_plugin.shell.job_creator import JobCreator
from backend_plugin.shell.logging_setup import build_attempt_fields
from backend_plugin.shell.reconciler import Reconciler
from backend_plugin.shell.runtime_service import require_runtime

log = logging.getLogger(__name__)

T = TypeVar("T")

SMALL_BYTES: Final = 8 * 2**10
"""Requests up to this size in bytes are handled in the event loop, in 20 ms at most, and usually in 1 ms."""


class Planner:
    """Parses large CreateTask requests and plans their jobs in a thread, while the event loop serves calls.

    It has only one thread, because each busy thread delays the event loop, which needs the GIL, too. If a
    call is cancelled before its work has started, the work does not run.
    """

    def __init__(self) -> None:
        schema_check.prepare_types()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of `work` for a request of `size` bytes.

        Above `SMALL_BYTES`, `work` runs in the planner's thread, so that it does not block the event loop.
        """
        if size <= SMALL_BYTES:
            return work()
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, context.run, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCreator:
    """Creates the jobs of tasks."""

    cluster: Cluster
    cache: Cache
    settings: Settings
    reconciler: Reconciler
    found: CapabilitiesCache
    jobs: JobCreator
    planner: Planner = field(default_factory=Planner)

    async def create(self, request: CreateRequest, size: int) -> JobRef:
        """Create the job of a request of `size` bytes, or adopt an existing job of the attempt.

        Return the reference to the job.

        Raises:
            InvalidTask: If no job can be planned for the task.
            RequestRejected: If the cluster rejects an object.
            AttemptSuperseded: If the Flyte node has a later attempt.
            ClusterUnavailable: If the cluster does not respond.
        """
        pod_templates, owner = await self._fetch_prerequisites(request.template, request.run)
        run = replace(request.run, owner=owner)
        planned = await self._plan_job(replace(request, run=run), pod_templates, size)
        await self.cache.ready.wait()  # Before this, the cache may lack other attempts.
        self.reconciler.deleter.delete_superseded(run)
        await require_runtime(self.cluster, planned)
        created, is_new, last = await self.jobs.create_or_find(planned, run)
        job = read_job(created)
        # Update the cache before the next await, because it drops events of jobs that it does not contain.
        self.cache.merge_fetched_job(run.namespace, job, last, is_new=is_new)
        place = {"namespace": run.namespace, "name": job.name, "output_prefix": run.output_prefix}
        ref = JobRef(dialect=job.dialect, uid=job.uid, **place)
        try:
            # A later attempt may have arrived during the request.
            self.reconciler.deleter.delete_superseded(run)
        except AttemptSuperseded:
            await self.reconciler.deleter.delete(ref)
            raise
        self.reconciler.prerequisites.own(job, planned.prerequisites)
        await self._ensure_companions(job, ref, is_new=is_new)
        return ref

    async def _fetch_prerequisites(
        self, template: TaskTemplate, run: Attempt
    ) -> tuple[Sequence[Manifest], OwnerReference | None]:
        template_name = template.metadata.pod_template_name or self.settings.default_pod_template_name
        owner = self.cluster.find_owner(run.namespace, run.execution)
        if not template_name:
            return (), await owner
        places = dict.fromkeys((run.namespace, self.settings.kfpytorch.pod_template_namespace))
        return await asyncio.gather(self.cluster.list_pod_templates([*places], template_name), owner)

    async def _plan_job(self, request: CreateRequest, pod_templates: Sequence[Manifest], size: int) -> Plan:
        """Return the plan of the job for a request of `size` bytes.

        If the task is invalid for the cached capabilities of the cluster, plan again with the current ones.
        """
        run = request.run
        make = partial(plan, request.template, run, self.settings, pod_templates)
        capabilities = await self.found.get_capabilities(run.namespace)
        try:
            planned = await self.planner.run(size, partial(make, capabilities))
        except InvalidTask:
            newer = await self.found.refresh(run.namespace)
            if newer == capabilities:
                raise
            planned = await self.planner.run(size, partial(make, newer))
        self.found.log_selection(run, planned.reasons)
        for warning in planned.warnings:
            log.warning("task accepted with a warning: %s", warning, extra=build_attempt_fields(run))
        return planned

    async def _ensure_companions(self, job: Job, ref: JobRef, *, is_new: bool) -> None:
        """Create the companion objects of a job, such as its pod group.

        Ignore a rejection if an earlier call created the job (`is_new` is False). Otherwise raise the
        rejection, and delete the job unless a repeated request may succeed, for example after an exceeded
        quota.

        Raises:
            RequestRejected: If a companion of a new job is rejected.
            Misconfigured: If a companion of a new job needs a role, namespace or API that is missing.
        """
        try:
            await self.reconciler.ensure_companions(job)
        except (RequestRejected, Misconfigured) as refused:
            if not is_new:  # The job may already run with companions from an earlier call.
                return
            if isinstance(refused, Misconfigured) or not rejection.is_transient(
                refused.code, refused.message
            ):
                await self.reconciler.deleter.delete(ref)
            raise

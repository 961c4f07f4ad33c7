"""The gRPC service `kfpytorch_idl.v1.RuntimeService` for the training runtimes of Kubeflow Trainer."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from backend_plugin.core import runtimes
from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.plan import Plan
from backend_plugin.core.runtimes import PackageJob, PackagesUnknown, Runtime
from backend_plugin.shell import job_encoding
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable, LogRequest, ObjectName, build_pod_name
from backend_plugin.shell.job_creator import create_job
from backend_plugin.shell.judge import Judge
from kfpytorch_idl.v1 import job_service_pb2 as wire

log = logging.getLogger(__name__)

TIMEOUT: Final = timedelta(minutes=10)
"""The default time limit for the job that lists the packages of a training runtime."""
_PAUSE: Final = 0.5
_TOKEN_BYTES: Final = 6


async def require_runtime(cluster: Cluster, planned: Plan) -> None:
    """Check the training runtime that the job of a plan refers to.

    Do nothing if jobs of this kind have no runtime, if the plan creates the runtime, or if the runtimes
    cannot be listed.

    Raises:
        InvalidTask: If the runtime does not exist, or has no container for the task.
    """
    support = table.get_dialect(planned.dialect).runtimes
    # A job with prerequisites has a runtime of its own.
    if support is None or planned.prerequisites:
        return
    try:
        found = await cluster.list_runtimes()
    except ClusterUnavailable as error:
        # The webhook rejects a job without a runtime, too.
        log.warning("the runtimes are unknown: %s", error)
        return
    if problems := [*support.check_reference(planned.job, found)]:
        raise InvalidTask(*problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeService:
    """The gRPC service ``RuntimeService``: lists training runtimes, and the packages of a runtime."""

    cluster: Cluster
    cache: Cache
    judge: Judge
    serves: Callable[[str], bool] = lambda _: True
    """Returns True for each namespace with runtimes that clients may see, and in which jobs may run."""
    inspects_images: bool = True
    """False for an embedded cluster, in which pods do not use container images."""

    async def list_runtimes(self, request: wire.ListRuntimesRequest) -> wire.ListRuntimesResponse:
        """Return the requested Kubeflow runtimes: TrainingRuntimes, then ClusterTrainingRuntimes."""
        namespace = request.namespace if request.HasField("namespace") else None
        selected = [
            each
            for each in await self._list_visible()
            if (request.include_job_runtimes or not each.job)
            and (namespace is None or each.namespace in ("", namespace))
        ]
        selected.sort(key=lambda each: (not each.namespace, each.namespace, each.name))
        return wire.ListRuntimesResponse(runtimes=map(job_encoding.encode_runtime, selected))

    async def get_runtime_packages(self, request: wire.GetRuntimePackagesRequest) -> wire.RuntimePackages:
        """Return the Python packages in a runtime's image; run a job that lists them, then delete the job."""
        if not self.inspects_images:
            raise runtimes.UnsupportedRuntime(
                "an embedded cluster cannot list the packages of a runtime: its pods do not use the "
                "runtime's image; call the server of a Kubernetes cluster"
            )
        namespace = request.namespace if request.HasField("namespace") else None
        runtime = runtimes.find_runtime(request.name, namespace, await self._list_visible())
        runtimes.require_packages(runtime)
        limit = request.timeout.ToTimedelta() if request.HasField("timeout") else TIMEOUT
        job = PackageJob(
            name=runtimes.build_job_name(runtime.name, secrets.token_hex(_TOKEN_BYTES)),
            namespace=self._require_namespace(runtime, namespace),
            seconds=max(1, round(limit.total_seconds())),
        )
        packages = runtimes.parse_report(await self._run_job(runtime, job))
        return job_encoding.encode_packages(runtime, packages)

    async def _list_visible(self) -> Sequence[Runtime]:
        all_runtimes = await self.cluster.list_runtimes()
        return [each for each in all_runtimes if not each.namespace or self.serves(each.namespace)]

    def _require_namespace(self, runtime: Runtime, namespace: str | None) -> str:
        place = runtime.namespace or namespace
        if not place:
            raise runtimes.AmbiguousRuntime(
                f"{runtime.name} is a {runtime.kind}; write the namespace in which its job runs: "
                "--namespace NAME"
            )
        if not self.serves(place):
            raise runtimes.UnsupportedRuntime(f"this connector does not serve namespace {place!r}")
        return place

    async def _run_job(self, runtime: Runtime, job: PackageJob) -> Sequence[str]:
        dialect = _get_dialect(runtime)
        assert dialect.runtimes is not None  # noqa: S101 - for mypy.
        name = ObjectName(namespace=job.namespace, name=job.name, dialect=dialect.name)
        log.info("job %s/%s lists the packages of runtime %s", name.namespace, name.name, runtime.name)
        try:
            await create_job(self.cluster, dialect, dialect.runtimes.build_package_job(runtime, job))
            entry = await self._wait_for_end(job)
            return await self._read_log(entry, runtime)
        finally:
            try:
                await self.cluster.delete(name, awaited=True)
            except ClusterUnavailable as error:
                log.warning("job %s is not deleted; it will be after its time to live: %s", name.name, error)

    async def _wait_for_end(self, job: PackageJob) -> CachedJob:
        """Return the cache entry of the job after its success; otherwise raise `PackagesUnknown`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + job.seconds
        verdict: Verdict | None = None
        while loop.time() < end:
            entry = self.cache.get((job.namespace, job.name))
            if entry is not None and entry.job is not None:
                verdict = self.judge.judge_entry(entry)
                if verdict.phase is Phase.SUCCEEDED:
                    return entry
                if verdict.phase.is_terminal:
                    raise PackagesUnknown(f"job {job.name} has failed: {verdict.message}")
            await asyncio.sleep(_PAUSE)
        state = f": {verdict.message}" if verdict is not None else ""
        raise PackagesUnknown(f"job {job.name} has not ended within {job.seconds} s{state}")

    async def _read_log(self, entry: CachedJob, runtime: Runtime) -> Sequence[str]:
        pod = next((each for each in entry.pods if each.role == runtime.role), None)
        if pod is None:
            raise PackagesUnknown(f"the pod of job {entry.name} is gone")
        request = LogRequest(container=_get_dialect(runtime).container)
        lines = self.cluster.read_log(build_pod_name(entry.namespace, pod), request)
        return [line.text async for line in lines]


def _get_dialect(runtime: Runtime) -> Dialect:
    return next(
        each
        for each in table.DIALECTS.values()
        if each.runtimes is not None and runtime.kind in {kind.kind for kind in each.runtimes.kinds}
    )

"""Builds the parts of a server from its settings, and connects them."""

import functools
import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import flyteidl.service.agent_pb2  # noqa: F401 - for reflection

from backend_plugin.cli import release
from backend_plugin.cli.cluster_options import is_pattern
from backend_plugin.cli.clusters import OpenedCluster
from backend_plugin.shell import connector_service, job_metrics, job_service, server, server_file
from backend_plugin.shell.allowlist import Allowlist
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.capabilities_cache import NO_CAPABILITIES, CapabilitiesCache
from backend_plugin.shell.credentials import KeyRing, Token, ensure_key_file, read_key_file
from backend_plugin.shell.job_cleaner import VerdictStore
from backend_plugin.shell.judge import Judge
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.node_service import NodeService
from backend_plugin.shell.orphan_finder import OrphanFinder
from backend_plugin.shell.orphans import OrphanCollector
from backend_plugin.shell.output_collector import OutputCollector
from backend_plugin.shell.output_prefixes import OutputPrefixes
from backend_plugin.shell.output_reader import OutputReader
from backend_plugin.shell.reconciler import Reconciler
from backend_plugin.shell.rpc_handlers import build_reflection_handler
from backend_plugin.shell.rpc_middleware import RpcMiddleware
from backend_plugin.shell.runtime_service import RuntimeService
from backend_plugin.shell.settings import ClusterKind, ServerSettings
from backend_plugin.shell.task_responses import TaskResponses
from backend_plugin.shell.together import run_until_first_exit
from backend_plugin.shell.watch_status import WatchStatus

_SERVICES: Final = (
    server.FLYTE,
    "flyteidl.service.AgentMetadataService",
    job_service.JOB_SERVICE,
    job_service.RUNTIME_SERVICE,
    "grpc.health.v1.Health",
)
# A separate limit, so that calls of users and tools do not block calls of Flyte.
_USER_CALLS_AT_ONCE: Final = 64
_OPERATIONS: Final = (
    "await_removal",
    "clean_up",
    "confirm_deleted",
    "create_companions",
    "delete_companions",
    "delete_job",
    "fetch_job",
    "own_prerequisite",
    "read_outputs",
    "record_event",
    "record_start",
)
SETTLE_SECONDS: Final = 3.0
"""Seconds to wait for background operations when the server stops.

The next server resumes unfinished operations, except deletions, which are not stored. The server therefore
waits for deletions until the end of its drain (the orderly shutdown), if that is later.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """The services and background tasks of a server, without the gRPC server itself."""

    tasks: connector_service.ConnectorService
    jobs: job_service.JobService
    runtimes: RuntimeService
    nodes: NodeService | None
    """The node service; None unless the cluster is embedded."""
    orders: BackgroundOperations
    orphans: OrphanCollector | None
    """Deletes orphans; None for an embedded cluster, which contains no Flyte executions."""
    found: CapabilitiesCache | None
    """The gang scheduling capabilities of the cluster; None if they are not needed."""

    async def run(self) -> None:
        """Run all background tasks until cancelled."""
        others = [each.run() for each in (self.orphans, self.found) if each is not None]
        await run_until_first_exit(self.tasks.reconciler.run(), *others)

    async def drain(self, left: float) -> None:
        """Wait for background operations after the last gRPC call; cancel those over the time limit.

        The limit is `SETTLE_SECONDS`. For deletions of jobs, it is `left`, the remaining seconds of the
        drain, if `left` is greater.
        """
        await self.orders.drain(SETTLE_SECONDS, left)


def assemble_server(here: OpenedCluster, settings: ServerSettings) -> ServerParts:
    """Build the services and background tasks of a server for the open cluster `here`."""
    cluster = here.cluster
    metrics, prefixes, ring = Metrics(), OutputPrefixes(settings.output_prefixes), _read_key_ring(settings)
    judge = Judge(settings=here.platform, now=here.now)
    get_watch_lag = functools.cache(metrics.watch_lag.labels)  # Each change of a pod calls this.
    watches = here.watch_status or WatchStatus()
    cache = Cache(here.now, lambda kind, lag: get_watch_lag(kind).observe(lag), watches.describe_failures)
    orders = BackgroundOperations(metrics)
    outcomes = OutputReader(
        prefixes, record_failure=lambda scheme, error: metrics.store_errors.add(scheme, type(error).__name__)
    )
    answers = TaskResponses(judge)
    reconciler = Reconciler(cluster, cache, answers, OutputCollector(cluster, cache, outcomes, orders, ring))
    allowed = Allowlist(
        prefixes=prefixes,
        namespaces=settings.namespaces,
        refused=settings.excluded_namespaces,
        template=settings.namespace_template,
    )
    orphans = _create_orphan_collector(here, allowed, metrics, settings)
    found = _create_capabilities_cache(here, settings)
    tasks = connector_service.ConnectorService(
        cluster=cluster,
        cache=cache,
        answers=answers,
        reconciler=reconciler,
        metrics=metrics,
        allowed=allowed,
        ring=ring,
        found=NO_CAPABILITIES if found is None else found,
        on_request=orphans.mark_in_use if orphans else lambda _: None,
    )
    _set_gauges(metrics, here, cache, orders)
    return ServerParts(
        tasks=tasks,
        jobs=job_service.JobService(
            cache=cache,
            judge=judge,
            cluster=cluster,
            verdicts=VerdictStore(cluster, metrics),
            serves=allowed.is_served,
        ),
        runtimes=RuntimeService(
            cluster=cluster,
            cache=cache,
            judge=judge,
            serves=allowed.is_served,
            inspects_images=here.nodes is None,
        ),
        nodes=NodeService(cache=cache, nodes=here.nodes, serves=allowed.is_served) if here.nodes else None,
        orders=orders,
        orphans=orphans,
        found=found,
    )


def _set_gauges(metrics: Metrics, here: OpenedCluster, cache: Cache, orders: BackgroundOperations) -> None:
    """Set the functions that compute the gauges of the metrics when Prometheus scrapes them."""
    build = (release.read_version(), platform.python_version())
    metrics.build.compute = lambda: {build: 1.0}
    metrics.jobs.compute = lambda: job_metrics.count_jobs(cache)
    metrics.oldest_waiting.compute = lambda: {(): job_metrics.compute_oldest_wait(cache, here.now())}
    metrics.cached.compute = lambda: _count_objects(cache)
    metrics.background_operations.compute = lambda: {
        (what,): orders.count_running(what) for what in _OPERATIONS
    }
    if here.watch_status is not None:
        metrics.watches.compute = here.watch_status.count_watches
        metrics.watch_age.compute = here.watch_status.ages
        here.watch_status.record_failure = lambda error: metrics.cluster_errors.add("watch", error)


def _read_key_ring(settings: ServerSettings) -> KeyRing:
    file = settings.signing_keys_file or ensure_key_file(settings.state_dir)
    return read_key_file(file, accepts_unsigned=settings.accept_unsigned)


def _create_capabilities_cache(here: OpenedCluster, settings: ServerSettings) -> CapabilitiesCache | None:
    plugin = here.platform.kfpytorch
    if here.capabilities is None or (plugin.gang.is_unconfigured and not plugin.selects_dialect):
        return None
    named = tuple(each for each in settings.namespaces if not is_pattern(each))
    return CapabilitiesCache(here.capabilities, plugin, named)


def _create_orphan_collector(
    here: OpenedCluster, allowed: Allowlist, metrics: Metrics, settings: ServerSettings
) -> OrphanCollector | None:
    if here.flyte is None:
        return None
    finder = OrphanFinder(cluster=here.flyte, allowed=allowed, now=here.now)
    return OrphanCollector(finder, metrics, settings.kubernetes.orphan_scan_interval)


def build_middleware(
    parts: ServerParts, settings: ServerSettings, token: Token | None
) -> Sequence[RpcMiddleware]:
    """Return the middleware for Flyte's calls, and the middleware for calls of users and tools."""
    # FlytePropeller sends no token. On Kubernetes, its calls need one only if a token file is configured; a
    # proxy then adds the token. Users may cancel and read jobs, so their calls always need the token, if
    # there is one.
    is_open = settings.cluster is ClusterKind.KUBERNETES and settings.token_file is None
    names = frozenset(settings.tls.client_names if settings.tls else ())
    flytes = RpcMiddleware(
        connector_service.build_handlers(parts.tasks),
        settings.max_concurrent_rpcs,
        None if is_open else token,
        parts.tasks.metrics,
        client_names=names,
    )
    services = _SERVICES if parts.nodes is None else (*_SERVICES, job_service.NODE_SERVICE)
    handlers = job_service.build_handlers(parts.jobs, parts.runtimes, parts.nodes)
    user_handlers = (*handlers, build_reflection_handler(services))
    others = RpcMiddleware(user_handlers, _USER_CALLS_AT_ONCE, token, parts.tasks.metrics, client_names=names)
    parts.tasks.metrics.running.compute = lambda: {("flyte",): flytes.running, ("jobs",): others.running}
    parts.tasks.metrics.streams.compute = lambda: {("flyte",): flytes.streaming, ("jobs",): others.streaming}
    return flytes, others


def create_token(settings: ServerSettings) -> Token | None:
    """Return the token that callers must send; None if the settings allow calls without a token.

    The token is the content of the token file. If the settings name no token file, the token is random.

    Raises:
        UnusableCredentials: If the token file contains no token.
    """
    if settings.token_file is not None:
        return Token.from_file(settings.token_file)
    return None if settings.allow_unauthenticated else Token.from_secret(secrets.token_urlsafe(32))


def build_server_info(settings: ServerSettings, token: Token | None, port: int) -> server_file.ServerInfo:
    """Return the information with which clients of this machine find this server."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme, roots = ("grpcs://", str(settings.tls.certificate)) if settings.tls else ("", "")
    return server_file.ServerInfo(
        endpoint=f"{scheme}{host}:{port}",
        token="" if settings.token_file or token is None else token.secret,
        token_file=str(settings.token_file or ""),
        pid=os.getpid(),
        roots=roots,
    )


def _count_objects(cache: Cache) -> Mapping[tuple[str, ...], float]:
    """Return the number of cached objects by kind.

    Count in a copy, because another thread may change the cache.
    """
    entries = list(cache)
    return {
        ("Job",): sum(1 for each in entries if each.job is not None),
        ("Pod",): sum(len(each.pods) for each in entries),
        ("Event",): sum(len(each.events) for each in entries),
    }

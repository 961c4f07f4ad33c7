"""Builds the parts of a server from its settings, and connects them."""

import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend_plugin.cli import release
from backend_plugin.cli.clusters import Opened, named_namespaces
from backend_plugin.core.errors import BackendError
from backend_plugin.shell import credentials, job_metrics, people, server, service
from backend_plugin.shell.allowed import Allowed
from backend_plugin.shell.answers import Answers
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.credentials import KeyRing, Token
from backend_plugin.shell.endings import Endings
from backend_plugin.shell.findings import NOBODY, Found
from backend_plugin.shell.front import Front
from backend_plugin.shell.judge import Judge
from backend_plugin.shell.keeper import Keeper
from backend_plugin.shell.metrics import Labels, Metrics
from backend_plugin.shell.orders import Orders
from backend_plugin.shell.orphans import Orphanage, Orphans, Rhythm
from backend_plugin.shell.outcome import Outcomes
from backend_plugin.shell.prefixes import Prefixes
from backend_plugin.shell.server import Reflection, ServerOptions
from backend_plugin.shell.settings import ClusterKind, ServerSettings
from backend_plugin.shell.together import together
from backend_plugin.shell.verdicts import Verdicts

_SERVICES: Final = {
    server.FLYTE: "flyteidl.service.agent_pb2",
    "flyteidl.service.AgentMetadataService": "flyteidl.service.agent_pb2",
    people.SERVICE: "kfpytorch_idl.v1.people_pb2",
    "grpc.health.v1.Health": "grpc_health.v1.health_pb2",
}
# A separate limit, so that calls of users and tools do not block calls of Flyte.
_PEOPLE_AT_ONCE: Final = 64
SETTLE_SECONDS: Final = 3.0
"""Seconds that background operations have when the server stops; the next server resumes the rest.

Deletions have the rest of the drain if that is longer, because they are not recorded anywhere else.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a server, without its port."""

    tasks: service.TaskService
    people: people.People
    cache: Cache
    keeper: Keeper
    orders: Orders
    metrics: Metrics
    orphans: Orphans | None
    """None if the cluster has no executions to compare with."""
    found: Found | None
    """None if no capabilities have to be read."""

    async def run(self) -> None:
        """Run all background tasks until cancelled."""
        others = [each.run() for each in (self.orphans, self.found) if each is not None]
        await together(self.keeper.run(), *others)

    async def settle(self, left: float) -> None:
        """Wait for background operations after the last call; `left` is the rest of the drain in seconds."""
        await self.orders.settle(SETTLE_SECONDS, "delete", left)


def assembled(here: Opened, said: ServerSettings) -> Parts:
    """Build the services and background tasks of a server."""
    cluster = here.cluster
    metrics, prefixes, ring = Metrics(), Prefixes(said.output_prefixes), _key_ring(said)
    judge = Judge(settings=here.platform, now=here.now)
    cache, orders = Cache(here.now, lambda kind, lag: metrics.watch_lag.child(kind).add(lag)), Orders(metrics)
    outcomes = Outcomes(prefixes, trouble=_counted(metrics))
    answers = Answers(judge)
    keeper = Keeper(cluster, cache, answers, Endings(cluster, cache, outcomes, orders, ring))
    allowed = Allowed(
        prefixes=prefixes,
        namespaces=said.namespaces,
        refused=said.refused_namespaces,
        template=said.namespace_template,
    )
    orphans = _orphans(here, allowed, metrics, said)
    found = _found(here, said)
    tasks = service.TaskService(
        service.Surroundings(
            cluster=cluster,
            cache=cache,
            answers=answers,
            keeper=keeper,
            metrics=metrics,
            allowed=allowed,
            ring=ring,
            found=NOBODY if found is None else found,
            asked=orphans.asked if orphans else lambda _: None,
        )
    )
    asked = people.People(
        cache=cache,
        judge=judge,
        cluster=cluster,
        verdicts=Verdicts(cluster, metrics),
        nodes=here.nodes,
        serves=allowed.serves,
    )
    _set_gauges(metrics, here, cache, orders)
    return Parts(
        tasks=tasks,
        people=asked,
        cache=cache,
        keeper=keeper,
        orders=orders,
        metrics=metrics,
        orphans=orphans,
        found=found,
    )


def _set_gauges(metrics: Metrics, here: Opened, cache: Cache, orders: Orders) -> None:
    """Set the sources of the gauges, which are read during a scrape."""
    build: Mapping[Labels, float] = {(release.read_version(), platform.python_version()): 1.0}
    metrics.build.ask = lambda: build
    metrics.jobs.ask = lambda: job_metrics.count_jobs(cache)
    metrics.oldest_waiting.ask = lambda: {(): job_metrics.age_of_oldest_waiting(cache, here.now())}
    metrics.cached.ask = lambda: _counts(cache)
    metrics.orders_pending.ask = lambda: {
        (what,): orders.count(what) for what in ("confirm", "delete", "end", "gone", "look", "read")
    }
    if here.sight is not None:
        metrics.watches.ask = here.sight.counts
        metrics.watch_age.ask = here.sight.ages
        here.sight.trouble = lambda error: metrics.cluster_errors.add("follow", error)


def _key_ring(said: ServerSettings) -> KeyRing:
    if said.signing_keys_file is not None:
        return KeyRing.in_file(said.signing_keys_file, accepts_unsigned=said.accept_unsigned)
    return KeyRing.in_directory(said.state, accepts_unsigned=said.accept_unsigned)


def _found(here: Opened, said: ServerSettings) -> Found | None:
    gang = here.platform.kfpytorch.gang
    if here.looks is None or gang.is_silent:
        return None
    return Found(here.looks, gang, named_namespaces(said))


def _orphans(here: Opened, allowed: Allowed, metrics: Metrics, said: ServerSettings) -> Orphans | None:
    if here.executions is None:
        return None
    orphanage = Orphanage(cluster=here.cluster, executions=here.executions, allowed=allowed, now=here.now)
    return Orphans(orphanage, metrics, Rhythm.of(said.kubernetes.orphans_every))


def fronts(parts: Parts, said: ServerSettings, token: str) -> Sequence[Front]:
    """Return one front for Flyte's calls and one for calls of users and tools."""
    secret = Token.in_file(said.token_file) if said.token_file else Token.of(token) if token else None
    # FlytePropeller sends no token. If jobs do not run as this user, its calls need one only if the admin has
    # configured a token file and adds the token on the way. Users may cancel and read jobs, so a token is
    # always required for their calls if there is one.
    is_open = said.cluster is ClusterKind.KUBERNETES and said.token_file is None
    names = frozenset(said.tls.client_names if said.tls else ())
    flytes = Front(
        service.handlers(parts.tasks),
        said.concurrency,
        None if is_open else secret,
        parts.metrics,
        client_names=names,
    )
    theirs = (people.handler(parts.people), Reflection(_SERVICES))
    others = Front(theirs, _PEOPLE_AT_ONCE, secret, parts.metrics, client_names=names)
    parts.metrics.running.ask = lambda: {("flyte",): flytes.running, ("people",): others.running}
    parts.metrics.streams.ask = lambda: {("flyte",): flytes.streaming, ("people",): others.streaming}
    return flytes, others


def token_of(said: ServerSettings) -> str:
    """Return the token that callers must send: from the file, or a random one; empty if none is required.

    Raises:
        UnusableCredentials: If the file contains no token.
    """
    if said.token_file is not None:
        return Token.in_file(said.token_file).word
    return "" if said.open_to_all else secrets.token_urlsafe(32)


def options(said: ServerSettings, interceptors: Sequence[Any]) -> ServerOptions:
    """Return the options of the gRPC server."""
    return ServerOptions(
        host=said.host,
        port=said.port,
        credentials=credentials.server_credentials(said.tls) if said.tls else None,
        receive_bytes=said.receive_limit,
        send_bytes=said.send_limit,
        drain_seconds=said.drain.total_seconds(),
        interceptors=interceptors,
    )


def _counted(metrics: Metrics) -> Callable[[str, BackendError], None]:
    return lambda scheme, error: metrics.store_errors.add(scheme, type(error).__name__)


def _counts(cache: Cache) -> Mapping[tuple[str, ...], float]:
    """Return the number of cached objects by kind; copies the cache, because another thread calls this."""
    entries = list(cache)
    return {
        ("Job",): sum(1 for each in entries if each.job is not None),
        ("Pod",): sum(len(each.pods) for each in entries),
        ("Event",): sum(len(each.events) for each in entries),
    }

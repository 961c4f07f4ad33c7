"""A cache of what a cluster supports, such as gang schedulers and kinds of jobs, per namespace.

The cache is refreshed periodically, and before a task is rejected.
"""

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import msgspec

from backend_plugin.core.job import Attempt
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.settings import PluginSettings
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.together import cancel_and_wait

_Key = TypeVar("_Key")

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 300.0
"""Seconds between two refreshes. Capabilities change only if an API is installed or an operator restarts."""
MAX_AGE_SECONDS: Final = 2.0
"""Maximum age in seconds of the capabilities on which a rejection may rely."""
_DISCOVERY_SECONDS: Final = 4.0
"""Timeout in seconds of one discovery of capabilities; a CreateTask call that waits for it ends after 7 s."""
_MAX_IDLE_REFRESHES: Final = 12
"""A namespace is removed from the cache after this number of refreshes without a task in the namespace."""
_FIRST: Final = ("default",)
MAX_NAMESPACES: Final = 1_000
"""Maximum number of namespaces in the cache; it is limited because callers can choose any namespace."""


class CapabilitySource(Protocol):
    """A source of a cluster's capabilities, such as its gang schedulers; Kubernetes clusters implement it."""

    async def fetch_capabilities(self, namespace: str, settings: PluginSettings) -> Capabilities:
        """Return what the cluster supports at present for the jobs of a namespace, such as gang schedulers.

        Only capabilities that the settings require are examined. For example, a pod is created in a dry run
        only if the settings require the detection of the gang scheduler.

        Raises:
            ClusterUnavailable: If the cluster does not respond.
        """


@dataclass(slots=True)
class _CacheEntry:
    findings: Capabilities
    at: float
    idle: int = 0
    """Number of refreshes since the last task in this namespace."""


class CapabilitiesCache:
    """A cache of what one cluster supports for jobs (gang schedulers, kinds of jobs), by namespace."""

    def __init__(
        self, source: CapabilitySource | None, settings: PluginSettings, namespaces: Sequence[str] = ()
    ) -> None:
        """Create an empty cache.

        Args:
            source: The cluster that reports its capabilities. None: no capabilities are found.
            settings: The settings, which determine what is discovered, and if jobs require the discovery.
            namespaces: The namespaces that are examined when `run` starts, and that are never removed from
                the cache; if empty, ``default``.
        """
        self._source = source
        self._settings = settings
        self._decides = settings.gang.needs_detection or settings.selects_dialect
        self._first = namespaces or _FIRST
        self._entries: dict[str, _CacheEntry] = {}
        self._fetches: dict[str, asyncio.Task[Capabilities]] = {}
        self._logged: dict[tuple[str, str, str], Sequence[str]] = {}

    async def run(self) -> None:
        """Refresh the cached capabilities periodically until cancelled."""
        try:
            for namespace in self._first:
                await self._try_fetch(namespace)
            while True:
                await asyncio.sleep(REFRESH_SECONDS)
                await self._refresh_all()
        finally:
            await cancel_and_wait([*self._fetches.values()])

    async def _refresh_all(self) -> None:
        for namespace, cached in [*self._entries.items()]:
            cached.idle += 1
            if cached.idle > _MAX_IDLE_REFRESHES and namespace not in self._first:
                del self._entries[namespace]
            else:
                await self._try_fetch(namespace)

    async def _try_fetch(self, namespace: str) -> None:
        try:
            await self._fetch_shared(namespace)
        except ClusterUnavailable as error:
            log.info("the gang capabilities of the cluster are unknown; retrying: %s", error)

    async def get_capabilities(self, namespace: str) -> Capabilities:
        """Return what the cluster supports for the jobs of a namespace, from the cache if possible.

        Raises:
            ClusterUnavailable: If the capabilities cannot be discovered, but the settings require them.
        """
        cached = self._entries.get(namespace)
        if cached is not None:
            cached.idle = 0
            return cached.findings
        return await self.refresh(namespace)

    async def refresh(self, namespace: str) -> Capabilities:
        """Return what the cluster supports for the jobs of a namespace, at most `MAX_AGE_SECONDS` old.

        The result decides whether a task is rejected. If the capabilities cannot be discovered and the
        settings do not require them, return only the last known default resource requests of containers.

        Raises:
            ClusterUnavailable: If the capabilities cannot be discovered, but the settings require them.
        """
        cached = self._entries.get(namespace)
        if self._source is None:
            return NOTHING
        if cached is not None and asyncio.get_running_loop().time() - cached.at < MAX_AGE_SECONDS:
            return cached.findings
        try:
            return await self._fetch_shared(namespace)
        except ClusterUnavailable:
            if self._decides:
                raise
            # Outdated capabilities do not justify a rejection, so only the settings decide.
            return (
                NOTHING
                if cached is None
                else Capabilities(container_defaults=cached.findings.container_defaults)
            )

    async def _fetch_shared(self, namespace: str) -> Capabilities:
        """Discover what the cluster supports; concurrent callers for a namespace share one discovery."""
        task = self._fetches.get(namespace)
        if task is None:
            task = self._fetches[namespace] = asyncio.ensure_future(self._fetch_capabilities(namespace))
            task.add_done_callback(lambda done: self._on_fetch_done(namespace, done))
        return await asyncio.shield(task)

    def _on_fetch_done(self, namespace: str, done: "asyncio.Task[Capabilities]") -> None:
        del self._fetches[namespace]
        if not done.cancelled():
            done.exception()  # Mark the exception as retrieved, because all callers may be gone.

    async def _fetch_capabilities(self, namespace: str) -> Capabilities:
        if self._source is None:
            return NOTHING
        try:
            findings = await asyncio.wait_for(
                self._source.fetch_capabilities(namespace, self._settings), _DISCOVERY_SECONDS
            )
        except asyncio.TimeoutError:
            raise ClusterUnavailable(
                f"the gang capabilities could not be read within {_DISCOVERY_SECONDS:g} s"
            ) from None
        last = self._entries.get(namespace)
        findings = findings if last is None else findings.with_last_known(last.findings)
        if last is None or last.findings != findings:
            log.info(
                "gang capabilities in namespace %s: %s", namespace, msgspec.json.encode(findings).decode()
            )
        at = asyncio.get_running_loop().time()
        self._entries.pop(namespace, None)
        self._entries[namespace] = _CacheEntry(findings, at, 0 if last is None else last.idle)
        _trim_table(self._entries, self._first)
        return findings

    def log_selection(self, run: Attempt, reasons: Sequence[str]) -> None:
        """Log why a gang scheduler was selected for a project's jobs; skip reasons that were logged last."""
        place = (run.namespace, run.project, run.domain)
        if self._logged.get(place) != reasons:
            self._logged[place] = reasons
            _trim_table(self._logged, ())
            names = (run.project, run.domain, run.namespace)
            log.info("gangs of %s/%s in namespace %s: %s", *names, " ".join(reasons))


def _trim_table(table: dict[_Key, Any], protected: Container[_Key]) -> None:
    """Remove the oldest entries, except `protected` ones, from a table with over `MAX_NAMESPACES` entries."""
    old = (each for each in [*table] if each not in protected)
    for key in islice(old, max(0, len(table) - MAX_NAMESPACES)):
        del table[key]


NO_CAPABILITIES: Final = CapabilitiesCache(None, PluginSettings())
"""A cache without a source of capabilities."""

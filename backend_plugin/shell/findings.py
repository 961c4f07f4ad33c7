"""A cache of the cluster's gang capabilities per namespace, refreshed periodically and before a rejection.

The capabilities are discovered in `kube.findings` and used in `core.scheduling.selection`.
"""

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import msgspec

from backend_plugin.core.job import Run
from backend_plugin.core.scheduling import Ganging
from backend_plugin.core.scheduling.findings import NOTHING, Findings
from backend_plugin.shell.cluster import Unavailable
from backend_plugin.shell.together import end

_Key = TypeVar("_Key")

log = logging.getLogger(__name__)

EVERY: Final = 300.0
"""Seconds between two refreshes: APIs come with an installation, and operators restart for a new flag."""
FRESH: Final = 2.0
"""Seconds for which a result is recent enough for a rejection."""
_LOOK: Final = 4.0
"""Timeout of one discovery in seconds; a CreateTask that waits for it has seven seconds."""
_KEPT: Final = 12
"""Number of refreshes without a task after which a namespace is dropped."""
_FIRST: Final = ("default",)
MOST: Final = 1_000
"""Maximum number of namespaces in the cache, because a call may name any."""


class Looks(Protocol):
    """A source of gang capabilities."""

    async def look(self, namespace: str, *, tries_pod: bool = True) -> Findings:
        """Return the current capabilities for the jobs of a namespace; raises `Unavailable`.

        Only with `tries_pod` a pod may be created in a dry run.
        """


@dataclass(slots=True)
class _Seen:
    findings: Findings
    at: float
    idle: int = 0
    """Refreshes since the last task of this namespace."""


class Found:
    """The capabilities of one cluster, by namespace."""

    def __init__(self, looks: Looks | None, gang: Ganging, namespaces: Sequence[str] = ()) -> None:
        """Create a cache; `namespaces` are refreshed before a task uses them.

        If `looks` is None, no capabilities are found.
        """
        self._looks = looks
        self._decides = gang.is_found
        self._first = namespaces or _FIRST
        self._seen: dict[str, _Seen] = {}
        self._looking: dict[str, asyncio.Task[Findings]] = {}
        self._told: dict[tuple[str, str, str], Sequence[str]] = {}

    async def run(self) -> None:
        """Refresh periodically until cancelled."""
        try:
            for namespace in self._first:
                await self._tried(namespace)
            while True:
                await asyncio.sleep(EVERY)
                await self._again()
        finally:
            await end([*self._looking.values()])

    async def _again(self) -> None:
        for namespace, seen in [*self._seen.items()]:
            seen.idle += 1
            if seen.idle > _KEPT and namespace not in self._first:
                del self._seen[namespace]
            else:
                await self._tried(namespace)

    async def _tried(self, namespace: str) -> None:
        try:
            await self._look(namespace)
        except Unavailable as trouble:
            log.info("the gang capabilities of the cluster are unknown; retrying: %s", trouble)

    async def of(self, namespace: str) -> Findings:
        """Return the capabilities for a namespace, from the cache if possible.

        Raises:
            Unavailable: If they cannot be discovered, and the choice of a scheduler may depend on them.
        """
        seen = self._seen.get(namespace)
        if seen is not None:
            seen.idle = 0
            return seen.findings
        return await self.anew(namespace)

    async def anew(self, namespace: str) -> Findings:
        """Return current capabilities, because a rejection must not rely on outdated ones."""
        seen = self._seen.get(namespace)
        if self._looks is None:
            return NOTHING
        if seen is not None and asyncio.get_running_loop().time() - seen.at < FRESH:
            return seen.findings
        try:
            return await self._look(namespace)
        except Unavailable:
            if self._decides:
                raise
            # Outdated capabilities do not justify a rejection, so only the settings decide.
            return NOTHING if seen is None else Findings(container_defaults=seen.findings.container_defaults)

    async def _look(self, namespace: str) -> Findings:
        """Discover the capabilities; concurrent callers share one discovery."""
        task = self._looking.get(namespace)
        if task is None:
            task = self._looking[namespace] = asyncio.ensure_future(self._looked(namespace))
            task.add_done_callback(lambda done: self._end(namespace, done))
        return await asyncio.shield(task)

    def _end(self, namespace: str, done: "asyncio.Task[Findings]") -> None:
        del self._looking[namespace]
        if not done.cancelled():
            done.exception()  # Mark the exception as retrieved, because all callers may be gone.

    async def _looked(self, namespace: str) -> Findings:
        if self._looks is None:
            return NOTHING
        try:
            findings = await asyncio.wait_for(self._looks.look(namespace, tries_pod=self._decides), _LOOK)
        except asyncio.TimeoutError:
            raise Unavailable(f"the gang capabilities could not be read within {_LOOK:g} s") from None
        last = self._seen.get(namespace)
        findings = findings if last is None else findings.after(last.findings)
        if last is None or last.findings != findings:
            log.info(
                "gang capabilities in namespace %s: %s", namespace, msgspec.json.encode(findings).decode()
            )
        at = asyncio.get_running_loop().time()
        self._seen.pop(namespace, None)
        self._seen[namespace] = _Seen(findings, at, 0 if last is None else last.idle)
        _trim(self._seen, self._first)
        return findings

    def tell(self, run: Run, reasons: Sequence[str]) -> None:
        """Log which scheduler is used for the jobs of a project, and why, if that has changed."""
        place = (run.namespace, run.project, run.domain)
        if self._told.get(place) != reasons:
            self._told[place] = reasons
            _trim(self._told, ())
            log.info(
                "gangs of %s/%s in namespace %s: %s",
                run.project,
                run.domain,
                run.namespace,
                " ".join(reasons),
            )


def _trim(table: dict[_Key, Any], kept: Container[_Key]) -> None:
    """Remove the oldest entries of a table that is longer than `MOST`."""
    old = (each for each in [*table] if each not in kept)
    for key in islice(old, max(0, len(table) - MOST)):
        del table[key]


NOBODY: Final = Found(None, Ganging())
"""A cache without a source of capabilities."""

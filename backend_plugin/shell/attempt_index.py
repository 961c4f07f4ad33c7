"""An index of jobs by Flyte node, so that a new attempt finds earlier attempts without a scan of all jobs."""

from typing import TYPE_CHECKING

from backend_plugin.core import attempts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backend_plugin.core.attempts import Node
    from backend_plugin.core.job import Attempt
    from backend_plugin.shell.cached_job import CachedJob


class AttemptIndex:
    """An index of cached jobs by Flyte node. It contains the jobs whose attempt is known."""

    def __init__(self) -> None:
        self._entries: dict[Node, dict[CachedJob, Attempt]] = {}

    def get_attempts(self, run: "Attempt") -> "Mapping[CachedJob, Attempt]":
        """Return the cached jobs of the Flyte node to which `run` belongs, each with its attempt."""
        return self._entries.get(attempts.get_flyte_node(run), {})

    def add(self, entry: "CachedJob") -> None:
        """Add a cached job; has no effect while its attempt is unknown."""
        if entry.origin is not None:
            run = entry.origin.run
            self._entries.setdefault(attempts.get_flyte_node(run), {})[entry] = run

    def remove(self, entry: "CachedJob") -> None:
        """Remove a cached job; call this before its attempt changes or the job leaves the cache."""
        if entry.origin is None:
            return
        node = attempts.get_flyte_node(entry.origin.run)
        of_node = self._entries.get(node, {})
        of_node.pop(entry, None)
        if not of_node:
            self._entries.pop(node, None)

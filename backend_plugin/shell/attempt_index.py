"""An index of jobs by Flyte node, so that a new attempt finds earlier attempts without a scan of all jobs."""

from typing import TYPE_CHECKING

from backend_plugin.core import attempts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backend_plugin.core.attempts import Node
    from backend_plugin.core.job import Attempt
    from backend_plugin.shell.cached_job import CachedJob


class AttemptIndex:
    """An index of cache entries by Flyte node; entries whose attempt is unknown are not in it."""

    def __init__(self) -> None:
        self._entries: dict[Node, dict[CachedJob, Attempt]] = {}

    def get_attempts(self, run: "Attempt") -> "Mapping[CachedJob, Attempt]":
        """Return the attempt of each entry of the Flyte node to which `run` belongs."""
        return self._entries.get(attempts.get_flyte_node(run), {})

    def add(self, entry: "CachedJob") -> None:
        """Add an entry; call this once, when the attempt of its job is known."""
        if entry.origin is not None:
            run = entry.origin.run
            self._entries.setdefault(attempts.get_flyte_node(run), {})[entry] = run

    def remove(self, entry: "CachedJob") -> None:
        """Remove an entry; call this before its attempt changes or the entry is dropped."""
        if entry.origin is None:
            return
        node = attempts.get_flyte_node(entry.origin.run)
        of_node = self._entries.get(node, {})
        of_node.pop(entry, None)
        if not of_node:
            self._entries.pop(node, None)

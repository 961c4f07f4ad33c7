"""An index of jobs by Flyte node, so that a new attempt finds earlier attempts without a scan of all jobs."""

from typing import TYPE_CHECKING

from backend_plugin.core import attempts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backend_plugin.core.attempts import Node
    from backend_plugin.core.job import Attempt
    from backend_plugin.shell.cached_job import CachedJob


class AttemptIndex:
    """An index of cache entries by Flyte node; entries whose attempt is unknown are not in it."""

    def __init__(self) -> None:
        self._entries: dict[Node, tuple[CachedJob, ...]] = {}

    def list_attempts(self, run: "Attempt") -> "Sequence[CachedJob]":
        """Return the entries of all attempts of the Flyte node to which `run` belongs."""
        return self._entries.get(attempts.get_flyte_node(run), ())

    def add(self, entry: "CachedJob") -> None:
        """Add an entry; call this once, when the attempt of its job is known."""
        if entry.origin is not None:
            node = attempts.get_flyte_node(entry.origin.run)
            self._entries[node] = (*self._entries.get(node, ()), entry)

    def remove(self, entry: "CachedJob") -> None:
        """Remove an entry; call this before its attempt changes or the entry is dropped."""
        if entry.origin is None:
            return
        node = attempts.get_flyte_node(entry.origin.run)
        left = tuple(each for each in self._entries.get(node, ()) if each is not entry)
        if left:
            self._entries[node] = left
        else:
            self._entries.pop(node, None)

"""The jobs of the attempts of each node, so that a new attempt finds the others among ten thousand jobs.

Lives here: which entry is under which node. Does not: which of them are over.
"""

from typing import TYPE_CHECKING

from backend_plugin.core import attempts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backend_plugin.core.attempts import Node
    from backend_plugin.core.job import Run
    from backend_plugin.shell.cache import Entry


class ByNode:
    """An index of a cache's entries; those that say no origin are not in it."""

    def __init__(self) -> None:
        self._entries: dict[Node, tuple[Entry, ...]] = {}

    def of(self, run: "Run") -> "Sequence[Entry]":
        """Entries of all attempts of the node that `run` is an attempt of."""
        return self._entries.get(attempts.node(run), ())

    def add(self, entry: "Entry") -> None:
        """Once, after its origin is known."""
        if entry.origin is not None:
            node = attempts.node(entry.origin.run)
            self._entries[node] = (*self._entries.get(node, ()), entry)

    def remove(self, entry: "Entry") -> None:
        """Before its origin changes, or it goes."""
        if entry.origin is None:
            return
        node = attempts.node(entry.origin.run)
        left = tuple(each for each in self._entries.get(node, ()) if each is not entry)
        if left:
            self._entries[node] = left
        else:
            self._entries.pop(node, None)

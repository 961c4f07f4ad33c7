"""What the attempts of one node have to do with each other: the last one replaces those before it.

Lives here: which attempts are of one node, and which of two is over. Does not: their jobs' names.
"""

from typing import TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Run

Node: TypeAlias = tuple[str, str]
"""Namespace of a node's jobs, and where all its attempts write."""


class Superseded(BackendError):
    """A later attempt of the same node has begun: nobody waits for this one any more."""


def is_earlier(run: Run, than: Run) -> bool:
    """Whether an attempt is an earlier one of the same node."""
    return run.attempt < than.attempt and node(run) == node(than)


def superseded(run: Run, by: Run) -> Superseded:
    """The error that says so.

    Whoever still asks for this attempt begins the next one when it fails, and so comes to the later one.
    """
    return Superseded(
        f"attempt {run.attempt} of {run.execution}/{run.node_id} is over: attempt {by.attempt} has begun"
    )


def node(run: Run) -> Node:
    """The node that an attempt is of; nodes of sub-workflows share their id, but not where they write."""
    return run.namespace, run.output_prefix.rstrip("/").rpartition("/")[0]

"""What the attempts of one node have to do with each other: the last one replaces those before it.

Lives here: which attempts are of one node, and which of two is over. Does not: their jobs' names.
"""

from typing import TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Run

Node: TypeAlias = tuple[str, str, str, str, str, str]
"""Namespace, project, domain, execution, node id, and the directory in which all attempts write."""


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
    """Return the identity of the node of an attempt.

    Nodes of sub-workflows share a node id but not a directory. The directory alone identifies no node: a
    caller chooses it, so it could name that of another execution.
    """
    directory = run.output_prefix.rstrip("/").rpartition("/")[0]
    return run.namespace, run.project, run.domain, run.execution, run.node_id, directory

"""What the attempts of one node have to do with each other: the last one replaces those before it.

Lives here: which attempts are of one node, and which of two is over. Does not: their jobs' names.
"""

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Run


class Superseded(BackendError):
    """A later attempt of the same node has begun: nobody waits for this one any more."""


def is_earlier(run: Run, than: Run) -> bool:
    """Whether an attempt is an earlier one of the same node."""
    return run.namespace == than.namespace and run.attempt < than.attempt and _node(run) == _node(than)


def superseded(run: Run, by: Run) -> Superseded:
    """The error that says so.

    Whoever still asks for this attempt begins the next one when it fails, and so comes to the later one.
    """
    return Superseded(
        f"attempt {run.attempt} of {run.execution}/{run.node_id} is over: attempt {by.attempt} has begun"
    )


def _node(run: Run) -> str:
    """Where all attempts of a node write; nodes of sub-workflows share their id, but not this."""
    return run.output_prefix.rstrip("/").rpartition("/")[0]

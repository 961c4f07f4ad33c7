"""Comparison of attempts: a later attempt of a Flyte node replaces the earlier ones."""

from typing import TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Attempt

Node: TypeAlias = tuple[str, str, str, str, str, str]
"""Namespace, project, domain, execution, node id, and the directory that all attempts write to."""


class AttemptSuperseded(BackendError):
    """Flyte no longer waits for the attempt, because a later attempt of the same Flyte node has begun."""


def is_earlier(run: Attempt, than: Attempt) -> bool:
    """True if `run` is an earlier attempt than `than`, of the same Flyte node."""
    return run.attempt < than.attempt and get_flyte_node(run) == get_flyte_node(than)


def build_superseded_error(run: Attempt, by: Attempt) -> AttemptSuperseded:
    """Return the error for a request about `run` after the later attempt `by` has begun.

    If FlytePropeller still requests `run`, this error makes it start the next attempts, up to attempt `by`.
    """
    return AttemptSuperseded(
        f"attempt {run.attempt} of {run.execution}/{run.node_id} is over: attempt {by.attempt} has begun"
    )


def get_flyte_node(run: Attempt) -> Node:
    """Return the identity of the Flyte node of an attempt.

    Nodes of sub-workflows share a node id, but their attempts write to different directories. The directory
    alone is not sufficient: the caller chooses it, and may choose the directory of another execution.
    """
    directory = run.output_prefix.rstrip("/").rpartition("/")[0]
    return run.namespace, run.project, run.domain, run.execution, run.node_id, directory

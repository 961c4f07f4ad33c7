"""Comparison of attempts: a later attempt of a Flyte node replaces the earlier ones."""

from typing import TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Attempt

Node: TypeAlias = tuple[str, str, str, str, str, str]
"""Namespace, project, domain, execution, node id, and the directory that all attempts write to."""


class AttemptSuperseded(BackendError):
    """A later attempt of the same Flyte node has begun, so Flyte does not wait for this one."""


def is_earlier(run: Attempt, than: Attempt) -> bool:
    """True if `run` is an earlier attempt than `than`, of the same Flyte node."""
    return run.attempt < than.attempt and get_flyte_node(run) == get_flyte_node(than)


def build_superseded_error(run: Attempt, by: Attempt) -> AttemptSuperseded:
    """Return the error for a request about `run` after the later attempt `by` has begun.

    If FlytePropeller still requests `run`, the error makes it start the next attempt, until it reaches `by`.
    """
    return AttemptSuperseded(
        f"attempt {run.attempt} of {run.execution}/{run.node_id} is over: attempt {by.attempt} has begun"
    )


def get_flyte_node(run: Attempt) -> Node:
    """Return the identity of the Flyte node of an attempt.

    Nodes of sub-workflows share a node id but not a directory. The directory alone is not sufficient: the
    caller chooses it, so it may be the directory of another execution.
    """
    directory = run.output_prefix.rstrip("/").rpartition("/")[0]
    return run.namespace, run.project, run.domain, run.execution, run.node_id, directory

"""Messages for the rejection of a task, by this server or by the cluster."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core import names
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import MOST_PROBLEMS, InvalidTask, Problem, check_size
from backend_plugin.core.job import Attempt
from backend_plugin.core.judging import verdict
from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

_MOST_PROBLEMS: Final = 8
LONGEST_NAMESPACE: Final = 63


def build_verdict(message: str) -> Verdict:
    """Return the failure of a task for which no job was created."""
    return verdict.build_failure(Cause.INVALID_CONFIG, "Rejected", message)


def format_problems(problems: Sequence[Problem]) -> str:
    """Return a message with the first problems of a task, one per line."""
    lines = [str(problem) for problem in problems[:_MOST_PROBLEMS]]
    more = len(problems) - len(lines)
    head = "the task cannot be run as it is" if len(problems) > 1 else "the task cannot be run"
    rest = (
        f"and {more} more problems" if len(problems) < MOST_PROBLEMS else f"and {more} or more other problems"
    )
    return "\n".join([f"{head}: {lines[0]}", *lines[1:], *([rest] if more else [])])


def format_cluster_rejection(reason: str, message: str) -> str:
    """Return the message for a rejection by the cluster; `reason` may be empty, as for a webhook."""
    return f"the cluster refuses the job{f' ({reason})' if reason else ''}: {message}"


def add_remedy(message: str) -> str:
    """Return an error message of the API server, followed by a remedy if `_REMEDIES` has one for it."""
    remedy = next((f"; {text}" for words, text in _REMEDIES.items() if re.search(words, message)), "")
    return f"{message}{remedy}"


def add_upgrade(message: str, dialect: Dialect) -> str:
    """Return an error message of the API server; for an unknown field, add how to install a newer CRD."""
    if "strict decoding error" not in message:
        return message
    return (
        f"{message}; if the field is valid, the definition of {dialect.operator} is too old: "
        f"{dialect.installation}"
    )


_REMEDIES: Final = {
    "because it is being terminated": (
        "run it in another project or domain, or after the namespace exists again"
    ),
    'namespaces "[^"]{0,253}" not found': "create the namespace, as Flyte does for each project and domain",
}
"""Remedies by patterns of the API server's error messages."""
_DENIALS: Final = ("admission webhook", "ValidatingAdmissionPolicy")
_FORBIDDEN: Final = 403


def is_transient(code: int, message: str) -> bool:
    """True if the API server reports an exceeded quota, which is temporary; False for a webhook's denial."""
    return code == _FORBIDDEN and not is_denial(message) and "exceeded quota" in message


def is_denial(message: str) -> bool:
    """True if the API server reports that an admission webhook or policy has denied the request."""
    _, _, reason = message.partition(" is forbidden: ")
    return message.startswith(_DENIALS) or reason.startswith(_DENIALS)


def check_attempt_fields(run: Attempt) -> Iterator[Problem]:
    """Yield a problem for each missing field that an attempt needs, and for a namespace that is too long."""
    needed = (
        ("output_prefix", run.output_prefix),
        ("task_execution_metadata.namespace", run.namespace),
        ("task_execution_metadata.task_execution_id.node_execution_id.execution_id.name", run.execution),
    )
    for field, value in needed:
        if not value:
            yield Problem(field=field, value="''", message="is missing", remedy="FlytePropeller sends it")
    remedy = "FlytePropeller sends a shorter one"
    yield from check_size("task_execution_metadata.namespace", len(run.namespace), LONGEST_NAMESPACE, remedy)


def require_own_job(run: Attempt, existing: Manifest) -> None:
    """Raise `InvalidTask` if an existing job does not belong to this attempt."""
    if not names.has_output_prefix(existing, run.output_prefix):
        raise InvalidTask(
            Problem(
                field="metadata.name",
                value=get_text(existing, "metadata", "name"),
                message="is the name of a job that this server has not created for this attempt",
                remedy="delete or rename that job",
            )
        )

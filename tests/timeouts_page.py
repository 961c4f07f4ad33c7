"""Tables of docs/explanation/timeouts.md: configurable timeouts, and fixed timeouts of the server."""

import ast
import inspect
from dataclasses import fields
from datetime import timedelta
from itertools import pairwise

from generated import code, table

from backend_plugin.core.judging import messages, verdict_rules
from backend_plugin.core.settings import judging, loader
from backend_plugin.kube import api_client, connection, list_watch
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell import (
    background_operations,
    connector_service,
    job_deleter,
    orphan_finder,
    output_collector,
    reconciler,
)

KEYS = {field: key for key, field in loader._GRACES.items()}
KUBERNETES = KubernetesOptions()

# Timeouts that no setting changes.
FIXED = [
    (connector_service._CREATE_SECONDS, "CreateTask", "then it returns UNAVAILABLE, and Flyte may retry it"),
    (
        reconciler.ACCOMPANY_CALL,
        "CreateTask waits for the pod group of a job",
        "then the call returns, and the creation continues in the background",
    ),
    (
        job_deleter.DELETE_CALL,
        "DeleteTask waits for the deletion",
        "then the call returns, and the deletion continues in the background",
    ),
    (
        KUBERNETES.patience,
        "one request to the API server, with its retries",
        "then the request fails",
    ),
    (
        api_client._DENIED,
        "repeats of a request that the API server rejects with 403",
        "then the request fails",
    ),
    (api_client._ATTEMPT, "one attempt of a request", "then another connection is tried"),
    (KUBERNETES.silence, "a watch without a byte", "then it is started again from the last received version"),
    (list_watch._LONGEST_PAUSE, "the longest pause between two attempts to list or watch", ""),
    (connection._RELOAD, "interval between reads of the credentials", ""),
    (
        reconciler.RESYNC_SECONDS,
        "interval between checks of a job that Flyte does not poll",
        "a check ends a job that exceeds a time limit",
    ),
    (
        verdict_rules._NEWS,
        "a failed job waits for a pod that explains the failure",
        "then the operator's message is the reason",
    ),
    (
        sum(output_collector.READ_PAUSES),
        "three reads of an ended job's error files and outputs, until one finds a file",
        "then the job has none",
    ),
    (
        output_collector.PATIENCE,
        "retries of a read from a store that does not respond",
        "then only the Kubernetes objects determine the phase",
    ),
    (
        background_operations.LONGEST_PAUSE,
        "the longest pause before a background operation is retried",
        "the number of retries has no limit",
    ),
    (
        reconciler.REMEMBERED,
        "a job that no longer exists stays in the server's cache",
        "a job that failed before it started is deleted after the same time",
    ),
    (orphan_finder.LEAST_AGE, "the age at which a job without an owner may be an orphan", ""),
]


def build_settings_table() -> str:
    """Return a table of the timeouts that a platform may set, with default and docstring."""
    descriptions = docstrings(judging.JudgingSettings)
    defaults = judging.JudgingSettings()
    times = [field.name for field in fields(defaults) if isinstance(getattr(defaults, field.name), timedelta)]
    return table(
        ["setting", "default", ""],
        [
            [
                code(KEYS.get(name, name.replace("_", "-"))),
                default(getattr(defaults, name)),
                descriptions[name],
            ]
            for name in times
        ],
    )


def default(value: timedelta) -> str:
    return messages.format_duration(value) if value else "0"


def docstrings(kind: type) -> dict[str, str]:
    """Return the attribute docstrings of a class, by field name."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    pairs = pairwise(body)
    return {
        field.target.id: " ".join(text.value.value.replace("``", "`").split())
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def build_server_table() -> str:
    """Return a table of the fixed timeouts."""
    return table(["time", "of what", "then"], [[lasting(value), what, then] for value, what, then in FIXED])


def lasting(value: float | timedelta) -> str:
    if isinstance(value, float) and value % 1:
        return f"{value:g} s"
    return messages.format_duration(value if isinstance(value, timedelta) else timedelta(seconds=value))

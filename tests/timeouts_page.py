"""Tables of docs/explanation/timeouts.md: configurable timeouts, and fixed timeouts of the server."""

import ast
import inspect
import re
from dataclasses import fields
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from generated import code, read_part, table

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

PAGE = Path(__file__).parent.parent / "docs/explanation/timeouts.md"
KEYS = {field: key for key, field in loader._GRACES.items()}
KUBERNETES = KubernetesOptions()

# Timeouts that no setting changes, by their ids on the page, which describes them.
FIXED = {
    "create-task": connector_service._CREATE_SECONDS,
    "pod-group": reconciler.ACCOMPANY_CALL,
    "delete-task": job_deleter.DELETE_CALL,
    "request": KUBERNETES.patience,
    "denied": api_client._DENIED,
    "attempt": api_client._ATTEMPT,
    "silence": KUBERNETES.silence,
    "list-pause": list_watch._LONGEST_PAUSE,
    "credentials": connection._RELOAD,
    "resync": reconciler.RESYNC_SECONDS,
    "explanation": verdict_rules._NEWS,
    "outputs": sum(output_collector.READ_PAUSES),
    "store": output_collector.PATIENCE,
    "background": background_operations.LONGEST_PAUSE,
    "remembered": reconciler.REMEMBERED,
    "orphan": orphan_finder.LEAST_AGE,
}
TIMEOUT = re.compile(r"^\| .*? \| (<!-- (\S+) --> .*?) \| (.*?) \|$", re.MULTILINE)


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
    """Return a table of the fixed timeouts, with the descriptions of the page."""
    found = TIMEOUT.findall(read_part(PAGE, "server")["text"])
    assert [name for _, name, _ in found] == [*FIXED]
    rows = [[lasting(FIXED[name]), what, then] for what, name, then in found]
    return table(["time", "of what", "then"], rows)


def lasting(value: float | timedelta) -> str:
    if isinstance(value, float) and value % 1:
        return f"{value:g} s"
    return messages.format_duration(value if isinstance(value, timedelta) else timedelta(seconds=value))

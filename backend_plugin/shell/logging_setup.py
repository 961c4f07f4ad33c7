"""The logging setup of the server (JSON lines, or coloured text at a terminal), and fields of log lines."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, Final, TextIO

from backend_plugin.core import printable
from backend_plugin.core.job import Attempt

FIELDS: Final = ("execution", "project", "domain", "node", "attempt", "job", "namespace")
"""The fields that identify the task of a log line, in display order."""
LEVELS: Final = ("debug", "info", "warning", "error")
FORMS: Final = ("json", "text")

_about: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039  (never changed)

# Colours at a terminal: red for errors, yellow for warnings.
_COLOURS: Final = {logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m", logging.WARNING: "\x1b[33m"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@contextmanager
def add_log_fields(**fields: object) -> Iterator[None]:
    """Add fields to all log lines of the `with` block, and of asyncio tasks that start in it."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def configure_logging(level: str = "info", form: str | None = None, stream: TextIO | None = None) -> None:
    """Configure the root logger of this process; the default of `form` is text at a terminal, else JSON."""
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    handler = logging.StreamHandler(stream)
    handler.addFilter(_add_fields)
    if (form or ("text" if terminal else "json")) == "json":
        handler.setFormatter(_build_json_formatter())
    else:
        handler.setFormatter(_TextFormatter(coloured=terminal))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    # No format uses these values, and computing them costs time for each line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _add_fields(record: logging.LogRecord) -> bool:
    for name, value in _about.get().items():
        record.__dict__.setdefault(name, value)
    return True


def _build_json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    class JsonLogFormatter(JsonFormatter):
        """A formatter that writes time, level, logger, message and fields as JSON, without empty fields."""

        def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in log_data.items() if value not in ("", None)}

    return JsonLogFormatter(
        ["created", "levelname", "name", "message"],
        rename_fields={"created": "time", "levelname": "level", "name": "logger"},
        json_default=str,
        json_serializer=_encode_json,
    )


def _encode_json(fields: dict[str, Any], **_options: Any) -> str:
    # RFC 3339, as Kubernetes and Flyte write times.
    moment = datetime.fromtimestamp(fields["time"], timezone.utc)
    return json.dumps({**fields, "time": moment.isoformat(timespec="milliseconds")}, default=str)


class _TextFormatter(logging.Formatter):
    """A formatter for lines like ``12:00:31 WARNING the store is read again  execution=f1 node=n0``."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._colours = _COLOURS if coloured else {}
        self._dim, self._plain = (_DIM, _PLAIN) if coloured else ("", "")

    def format(self, record: logging.LogRecord) -> str:
        colour = self._colours.get(record.levelno, "")
        fields = [
            f"{name}={record.__dict__[name]}"
            for name in FIELDS
            if record.__dict__.get(name) not in ("", None)
        ]
        lines = [record.getMessage()]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        text = printable.escape("\n".join(lines))
        suffix = printable.escape(" ".join(fields)).replace("\n", " ")
        clock = self.formatTime(record, "%H:%M:%S")
        head = f"{clock} {colour}{record.levelname:<7}{self._plain if colour else ''} {text}"
        return f"{head}  {self._dim}{suffix}{self._plain}" if suffix else head


def build_attempt_fields(run: Attempt, job: str = "") -> Mapping[str, object]:
    """Return the log fields for an attempt; `job` is empty if the attempt has no job."""
    return {
        "execution": run.execution,
        "project": run.project,
        "domain": run.domain,
        "node": run.node_id,
        "attempt": run.attempt,
        "namespace": run.namespace,
        "job": job,
    }


def build_job_fields(namespace: str, job: str) -> Mapping[str, object]:
    """Return the log fields for a job when only its namespace and name are available."""
    return {"namespace": namespace, "job": job}

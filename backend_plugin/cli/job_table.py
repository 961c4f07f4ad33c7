"""The table of jobs and its changes, as ``kfpytorch jobs`` and ``kfpytorch describe`` print them."""

import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from backend_plugin import client
from backend_plugin.cli import asking, tables

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

HEADER: Final = ("NAME", "PHASE", "READY", "AGE", "MESSAGE")
_FAILED: Final = 1


def get_request_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that all requests to the server share: the namespace and the server."""
    return {"namespace": options["namespace"], "server": asking.read_server(options, options["server"])}


def build_list_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request for several jobs; JSON output also needs replicas and events."""
    return {**get_request_options(options), "details": options["output"] == "json"}


def format_row(job: "wire.Job", now: datetime) -> tuple[str, ...]:
    """Return the row of a job."""
    message = job.verdict.message
    return (
        job.name,
        job.verdict.phase,
        f"-/{job.total}" if job.foreign else f"{job.ready}/{job.total}",
        tables.format_age(tables.get_time(job, "created"), now),
        f"{job.kind} of another client: {message or job.verdict.reason}" if job.foreign else message,
    )


def _print_change(change: "wire.JobChange", kind: str, columns: tables.Columns, output: str) -> None:
    if output == "json":
        asking.print_json_line({"change": kind, **asking.encode_message(getattr(change, kind))})
    elif kind == "job":
        asking.print_line(columns.format_row(format_row(change.job, datetime.now(timezone.utc))))
    else:
        asking.print_line(columns.format_row((change.gone.name, "-", "-", "-", "is gone")))


def print_changes(name: str | None, options: Mapping[str, Any], *, active_only: bool = False) -> None:
    """Print the job `name`, or all jobs if it is None, and their changes.

    For a single job, return when it succeeds, and exit with 1 when it fails or is gone.
    """
    last: wire.Job | None = None
    columns = tables.Columns(HEADER)
    with closing(client.watch_jobs(name, active_only=active_only, **build_list_options(options))) as changes:
        for change in changes:
            if last is None and options["output"] != "json":
                asking.print_line(columns.format_header())
            kind = str(change.WhichOneof("change"))
            last = getattr(change, kind)
            _print_change(change, kind, columns, options["output"])
    # Only the watch of a single job ends.
    if last is not None and last.verdict.phase != "SUCCEEDED":
        sys.exit(_FAILED)

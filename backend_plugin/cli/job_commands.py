"""The commands ``kfpytorch jobs``, ``wait`` and ``cancel``, and the output of jobs and their changes."""

import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import command_errors, command_io, tables
from backend_plugin.core import printable

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_JOBS_HELP: Final = """Print the jobs of a server with their state, the newest first.

\b
  $ kfpytorch jobs
  $ kfpytorch jobs --watch
  $ kfpytorch jobs --all
"""
_WAIT_HELP: Final = """Wait until JOB has ended.

The exit code is 0 if it succeeded, 1 if it failed, and 4 if it has not ended within the timeout.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch wait f1-n0-0
  $ kfpytorch wait f1-n0-0 --timeout 30m
"""
_CANCEL_HELP: Final = """Cancel JOB permanently. Flyte receives a failure with the reason, and does not retry.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch cancel f1-n0-0 --reason "the data is wrong"
"""
_HEADER: Final = ("NAME", "PHASE", "READY", "AGE", "MESSAGE")
_FAILED: Final = 1
_TIMEOUT: Final = 4


def _build_list_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request for jobs; for JSON output, it includes replicas and events."""
    return {**command_io.get_request_options(options), "details": options["output"] == "json"}


def _format_row(job: "wire.Job", now: datetime) -> tuple[str, ...]:
    """Return the cells of a job in the table of jobs; its age is relative to `now`."""
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
        command_io.print_json_line({"change": kind, **command_io.encode_message(getattr(change, kind))})
    elif kind == "job":
        command_io.print_line(columns.format_row(_format_row(change.job, datetime.now(timezone.utc))))
    else:
        command_io.print_line(columns.format_row((change.gone.name, "-", "-", "-", "is gone")))


def print_changes(name: str | None, options: Mapping[str, Any], *, active_only: bool = False) -> None:
    """Print the job `name`, or all jobs if it is None, and their changes.

    For a single job, return when it succeeds, and exit with 1 when it fails or is gone.
    """
    last: wire.Job | None = None
    columns = tables.Columns(_HEADER)
    with closing(client.watch_jobs(name, active_only=active_only, **_build_list_options(options))) as changes:
        for change in changes:
            if last is None and options["output"] != "json":
                command_io.print_line(columns.format_row(_HEADER))
            kind = str(change.WhichOneof("change"))
            last = getattr(change, kind)
            _print_change(change, kind, columns, options["output"])
    # Only the watch of a single job ends.
    if last is not None and last.verdict.phase != "SUCCEEDED":
        sys.exit(_FAILED)


@click.command(name="jobs", help=_JOBS_HELP)
@click.option("--watch", "-w", is_flag=True, help="Also print each change.")
@click.option("--active", "-a", is_flag=True, help="Only jobs that have not ended.")
@click.option(
    "--all",
    "foreign",
    is_flag=True,
    help="Also the jobs of the cluster that other clients created, which are read-only.",
)
@command_io.request_options("table")
def jobs(**options: Any) -> None:
    """Run ``kfpytorch jobs``: print the jobs of the server, and with ``--watch`` their changes."""
    if options["watch"] and options["foreign"]:
        raise click.UsageError(
            "--all does not work with --watch, which receives only own jobs; leave one out"
        )
    with command_io.exit_on_error():
        if options["watch"]:
            print_changes(None, options, active_only=options["active"])
        else:
            selection = {"active_only": options["active"], "foreign": options["foreign"]}
            found = client.list_jobs(**selection, **_build_list_options(options))
            row = partial(_format_row, now=datetime.now(timezone.utc))
            command_io.print_messages(found, options["output"], _HEADER, row, "there are no jobs")


@click.command(name="wait", help=_WAIT_HELP)
@click.argument("job")
@command_io.timeout_option("The longest time to wait, such as 90s or 1h30m. Default: no limit.")
@command_io.request_options("text")
def wait(**options: Any) -> None:
    """Run ``kfpytorch wait``: wait until the job ends; the exit code shows how it ended."""
    with command_io.exit_on_error():
        try:
            job = client.wait_for_job(
                options["job"], timeout=options["timeout"], **command_io.get_request_options(options)
            )
        except client.NotEnded as error:
            command_errors.exit_with_error(error, _TIMEOUT)
        has_failed = job.verdict.phase != "SUCCEEDED"
        lines = [f"{job.name} has ended: {job.verdict.phase}", *([job.verdict.message] if has_failed else [])]
        command_io.print_message(job, options["output"], map(printable.escape, lines))
        if has_failed:
            sys.exit(_FAILED)


@click.command(name="cancel", help=_CANCEL_HELP)
@click.argument("job")
@click.option("--reason", metavar="TEXT", default="", help="Reason, which Flyte shows.")
@command_io.request_options("text")
def cancel(**options: Any) -> None:
    """Run ``kfpytorch cancel``: cancel a job permanently."""
    with command_io.exit_on_error():
        place = command_io.get_request_options(options)
        done = client.cancel_job(options["job"], reason=options["reason"], **place)
        line = f"{done.job.name} is cancelled: {done.job.verdict.phase}; it was {done.phase_before}"
        if done.already_finished:
            line = f"{done.job.name} has ended already: {done.job.verdict.phase}"
        command_io.print_message(done, options["output"], [line])

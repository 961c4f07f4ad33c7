"""``kfpytorch jobs``: lists the jobs of a server, watches them, or prints one in full."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import msgspec
import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, json_lines, tables
from backend_plugin.core import printable

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import people_pb2 as wire

_HELP: Final = """Print the jobs of a server with their state, or one job in full.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch jobs
  $ kfpytorch jobs --watch
  $ kfpytorch jobs f1-n0-0 -o json
"""
_HEADER: Final = ("NAME", "PHASE", "READY", "AGE", "MESSAGE")
_FAILED: Final = 1


@click.command(name="jobs", help=_HELP)
@click.argument("job", required=False)
@click.option("--watch", "-w", is_flag=True, help="Also print each change; for one job, until it ends.")
@click.option("--living", "-l", is_flag=True, help="Only jobs that have not ended.")
@asking.namespace_option
@asking.server_options
@asking.output_option("table")
def command(**said: Any) -> None:
    """Run ``kfpytorch jobs``."""
    with asking.exit_on_error():
        if said["watch"]:
            _print_changes(said)
        elif said["job"]:
            _print_job(client.get_job(said["job"], **_get_request_options(said)), said["output"])
        else:
            _print_jobs(client.list_jobs(living=said["living"], **_build_list_options(said)), said["output"])


def _get_request_options(said: Mapping[str, Any]) -> dict[str, Any]:
    return {"namespace": said["namespace"], "server": asking.read_server(said, said["server"])}


def _build_list_options(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a query for several jobs; only JSON contains replicas and events."""
    return {**_get_request_options(said), "details": said["output"] == "json"}


# ---- list


def _print_jobs(jobs: Sequence["wire.Job"], form: str) -> None:
    if form == "json":
        _print_json([asking.encode_message(job) for job in jobs])
        return
    if not jobs:
        click.echo("there are no jobs", err=True)
        return
    now = datetime.now(timezone.utc)
    click.echo("\n".join(tables.format_table(_HEADER, [_format_row(job, now) for job in jobs])))


def _format_row(job: "wire.Job", now: datetime) -> tuple[str, ...]:
    return (
        job.name,
        job.flyte.phase,
        f"{job.ready}/{job.total}",
        tables.format_age(tables.get_time(job, "created"), now),
        job.flyte.message,
    )


def _print_json(value: Any) -> None:
    click.echo(msgspec.json.format(json_lines.encode_json(value), indent=2))


# ---- watch


def _print_change(change: "wire.JobChange", kind: str, columns: tables.Columns, output: str) -> None:
    if output == "json":
        asking.print_json_line({"change": kind, **asking.encode_message(getattr(change, kind))})
    elif kind == "job":
        asking.print_line(columns.format_row(_format_row(change.job, datetime.now(timezone.utc))))
    else:
        asking.print_line(columns.format_row((change.gone.name, "-", "-", "-", "is gone")))


def _print_changes(said: Mapping[str, Any]) -> None:
    last: wire.Job | None = None
    columns = tables.Columns(_HEADER)
    with closing(
        client.watch_jobs(said["job"], living=said["living"], **_build_list_options(said))
    ) as changes:
        for change in changes:
            if last is None and said["output"] != "json":
                asking.print_line(columns.format_header())
            kind = str(change.WhichOneof("change"))
            last = getattr(change, kind)
            _print_change(change, kind, columns, said["output"])
    # Only the watch of a single job ends.
    if last is not None and last.flyte.phase != "SUCCEEDED":
        sys.exit(_FAILED)


# ---- one job


def _print_job(job: "wire.Job", form: str) -> None:
    if form == "json":
        _print_json(asking.encode_message(job))
        return
    now = datetime.now(timezone.utc)
    click.echo(
        "\n".join(
            [
                *_format_head(job, now),
                *_format_verdict(job.flyte),
                "",
                *_format_replicas(job),
                *_format_events(job),
            ]
        )
    )


def _format_head(job: "wire.Job", now: datetime) -> list[str]:
    whose = job.origin
    said = [f"{job.namespace}/{job.name}"]
    if whose.execution:
        said.append(
            f"  {whose.task}, node {whose.node_id} of execution {whose.execution} "
            f"({whose.project}, {whose.domain}), attempt {whose.attempt}"
        )
    ended = tables.get_time(job, "ended")
    times = f"made {tables.format_age(tables.get_time(job, 'created'), now)} ago"
    said.append(f"  {times}" + (f", ended {tables.format_age(ended, now)} ago" if ended else ""))
    return said


def _format_verdict(flyte: "wire.Verdict") -> list[str]:
    cause = f", {flyte.cause}" if flyte.cause else ""
    colour = tables.get_colour(flyte.phase) if tables.is_coloured() else None
    said = [click.style(f"{flyte.phase} ({flyte.reason}{cause})", fg=colour, bold=True)]
    said += [f"  {line}" for line in printable.escape(flyte.message).splitlines()]
    if flyte.phase in ("FAILED", "RETRYABLE_FAILED"):
        said.append(f"  Flyte {'may try again' if flyte.retry else 'does not try again'}")
    return [*said, *(printable.escape(f"  {link.name}: {link.uri}") for link in flyte.logs)]


_REPLICA_HEADER: Final = (
    "REPLICA",
    "RANKS",
    "PHASE",
    "NODE",
    "RESTARTS",
    "EXIT",
    "STARTED",
    "ENDED",
    "REASON",
)


def _format_replicas(job: "wire.Job") -> list[str]:
    rows = [
        (
            f"{each.role}-{each.index}",
            _format_ranks(each),
            each.phase or "-",
            each.node or "-",
            str(each.restarts),
            str(each.exit_code) if each.HasField("exit_code") else "-",
            tables.format_clock(tables.get_time(each, "started")),
            tables.format_clock(tables.get_time(each, "ended")),
            each.reason,
        )
        for each in job.replicas
    ]
    return tables.format_table(_REPLICA_HEADER, rows) if rows else ["the job has no pods"]


def _format_ranks(replica: "wire.Replica") -> str:
    if not replica.HasField("first_rank"):
        return "-"
    last = replica.first_rank + replica.ranks - 1
    return str(last) if replica.ranks == 1 else f"{replica.first_rank}-{last}"


def _format_events(job: "wire.Job") -> list[str]:
    said = [
        f"  {tables.format_clock(tables.get_time(each, 'at'))}  {each.reason}  "
        f"{each.name.removeprefix(job.name).lstrip('-') or 'job'}: "
        f"{tables.shorten(printable.escape(each.message), None)}"
        for each in job.events
    ]
    return ["", "events", *said] if said else []

"""``kfpytorch describe, logs``: prints one job in full, or the output of its replicas."""

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import command_io, job_commands, json_lines, tables
from backend_plugin.core import printable
from kfpytorch_common.output_lines import format_plain

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_DESCRIBE_HELP: Final = """Print one job in full: its state, its replicas and its last events.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch describe f1-n0-0
  $ kfpytorch describe f1-n0-0 --watch
  $ kfpytorch describe f1-n0-0 -o json
"""
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
_LOGS_HELP: Final = """Print the output of the replicas of JOB, ordered by time.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch logs -f f1-n0-0
  $ kfpytorch logs f1-n0-0 --rank 3 --tail 20
"""
_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")
# Control characters that a terminal would interpret, except the tab.
_CONTROL: Final = {code: None for code in (*range(32), *range(127, 160)) if code != ord("\t")}
_NUMBERS: Final = click.IntRange(min=0, max=2**31 - 1)
_NUMBER: Final = re.compile(r"\d+$")


@click.command(name="describe", help=_DESCRIBE_HELP)
@click.argument("job")
@click.option("--watch", "-w", is_flag=True, help="Print each change, until the job ends.")
@command_io.request_options("table")
def describe(**options: Any) -> None:
    """Run ``kfpytorch describe``: print one job with all details."""
    with command_io.exit_on_error():
        if options["watch"]:
            job_commands.print_changes(options["job"], options)
        else:
            job = client.get_job(options["job"], **command_io.get_request_options(options))
            verdict = tables.format_verdict(job.verdict.phase, job.verdict.cause, job.verdict)
            lines = [*_format_head(job), *verdict, "", *_format_replicas(job), *_format_events(job)]
            command_io.print_message(job, options["output"], lines)


def _format_head(job: "wire.Job") -> list[str]:
    attempt, now = job.attempt, datetime.now(timezone.utc)
    lines = [f"{job.namespace}/{job.name}"]
    if attempt.execution:
        lines.append(
            f"  {attempt.task}, node {attempt.node_id} of execution {attempt.execution} "
            f"({attempt.project}, {attempt.domain}), attempt {attempt.attempt}"
        )
    ended = tables.get_time(job, "ended")
    times = f"created {tables.format_age(tables.get_time(job, 'created'), now)} ago"
    lines.append(f"  {times}" + (f", ended {tables.format_age(ended, now)} ago" if ended else ""))
    return lines


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
    lines = [
        f"  {tables.format_clock(tables.get_time(each, 'at'))}  {each.reason}  "
        f"{each.name.removeprefix(job.name).lstrip('-') or 'job'}: "
        f"{tables.shorten(printable.escape(each.message), None)}"
        for each in job.events
    ]
    return ["", "events", *lines] if lines else []


@click.command(name="logs", help=_LOGS_HELP)
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the job ends.")
@click.option("--rank", type=_NUMBERS, metavar="N", help="Only the output of this rank.")
@click.option("--replica", metavar="NAME", help="Only the output of this replica, such as worker-1.")
@click.option(
    "--node", type=_NUMBERS, metavar="N", help="Only the output of this node, in the order of ranks."
)
@click.option("--tail", type=_NUMBERS, metavar="N", help="Only the last N lines of each replica.")
@click.option("--previous", "-p", is_flag=True, help="Output from before the last restart of the containers.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@command_io.request_options("text")
def logs(**options: Any) -> None:
    """Run ``kfpytorch logs``: print the output of the replicas of a job."""
    log_options = client.LogOptions(
        **{key: options[key] for key in ("follow", "tail", "rank", "replica", "node", "previous")}
    )
    with command_io.exit_on_error():
        read = client.read_log_parts(options["job"], log_options, **command_io.get_request_options(options))
        is_empty = True
        with closing(read) as parts:
            for part in parts:
                is_empty = False
                sys.stdout.buffer.write(b"".join(_format_lines(part.lines, options)))
                sys.stdout.buffer.flush()
        if is_empty:
            click.echo("there is no output, or it was deleted with the pods", err=True)


def _format_lines(part: Iterable["wire.LogLine"], options: Mapping[str, Any]) -> Iterable[bytes]:
    if options["output"] == "json":
        return (json_lines.encode_json(command_io.encode_message(line)) + b"\n" for line in part)
    coloured = tables.is_coloured()
    return (_format_line(line, coloured=coloured, timed=options["timestamps"]) for line in part)


def _format_line(line: "wire.LogLine", *, coloured: bool, timed: bool) -> bytes:
    name = f"[{line.replica}]"
    prefix = click.style(name, fg=get_colour(line.replica)) if coloured else name
    time = f"{line.time} " if timed else ""
    text = format_plain(line.text.encode(errors="replace")).decode(errors="replace").translate(_CONTROL)
    return f"{prefix} {time}{text}\n".encode()


def get_colour(replica: str) -> str:
    """Return the colour for log lines of a replica; successive replicas have different colours."""
    number = _NUMBER.search(replica)
    place = int(number[0]) if number else 0
    return _COLOURS[(place + (not replica.startswith("master"))) % len(_COLOURS)]

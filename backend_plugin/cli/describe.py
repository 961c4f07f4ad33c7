"""``kfpytorch describe``: prints one job in full, or watches it until it ends."""

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, job_table, json_lines, tables
from backend_plugin.core import printable

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_HELP: Final = """Print one job in full: its state, its replicas and its last events.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch describe f1-n0-0
  $ kfpytorch describe f1-n0-0 --watch
  $ kfpytorch describe f1-n0-0 -o json
"""


@click.command(name="describe", help=_HELP)
@click.argument("job")
@click.option("--watch", "-w", is_flag=True, help="Print each change, until the job ends.")
@asking.namespace_option
@asking.server_options
@asking.output_option("table")
def command(**options: Any) -> None:
    """Run ``kfpytorch describe``."""
    with asking.exit_on_error():
        if options["watch"]:
            job_table.print_changes(options["job"], options)
        else:
            job = client.get_job(options["job"], **job_table.get_request_options(options))
            _print_job(job, options["output"])


def _print_job(job: "wire.Job", form: str) -> None:
    if form == "json":
        json_lines.print_json(asking.encode_message(job))
        return
    now = datetime.now(timezone.utc)
    state = [
        *_format_head(job, now),
        *tables.format_verdict(job.verdict.phase, job.verdict.cause, job.verdict),
    ]
    click.echo("\n".join([*state, "", *_format_replicas(job), *_format_events(job)]))


def _format_head(job: "wire.Job", now: datetime) -> list[str]:
    attempt = job.attempt
    lines = [f"{job.namespace}/{job.name}"]
    if attempt.execution:
        lines.append(
            f"  {attempt.task}, node {attempt.node_id} of execution {attempt.execution} "
            f"({attempt.project}, {attempt.domain}), attempt {attempt.attempt}"
        )
    ended = tables.get_time(job, "ended")
    times = f"made {tables.format_age(tables.get_time(job, 'created'), now)} ago"
    lines.append(f"  {times}" + (f", ended {tables.format_age(ended, now)} ago" if ended else ""))
    return lines


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
    lines = [
        f"  {tables.format_clock(tables.get_time(each, 'at'))}  {each.reason}  "
        f"{each.name.removeprefix(job.name).lstrip('-') or 'job'}: "
        f"{tables.shorten(printable.escape(each.message), None)}"
        for each in job.events
    ]
    return ["", "events", *lines] if lines else []

"""``kfpytorch jobs``: lists the jobs of a server, or watches them."""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, job_table, json_lines, tables

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_HELP: Final = """Print the jobs of a server with their state, the newest first.

\b
  $ kfpytorch jobs
  $ kfpytorch jobs --watch
  $ kfpytorch jobs --all
"""


@click.command(name="jobs", help=_HELP)
@click.option("--watch", "-w", is_flag=True, help="Also print each change.")
@click.option("--active", "-a", is_flag=True, help="Only jobs that have not ended.")
@click.option(
    "--all",
    "foreign",
    is_flag=True,
    help="Also the jobs of the cluster that other clients created, which are read-only.",
)
@asking.namespace_option
@asking.server_options
@asking.output_option("table")
def command(**options: Any) -> None:
    """Run ``kfpytorch jobs``."""
    if options["watch"] and options["foreign"]:
        raise click.UsageError(
            "--all does not work with --watch, which receives only own jobs; leave one out"
        )
    with asking.exit_on_error():
        if options["watch"]:
            job_table.print_changes(None, options, active_only=options["active"])
        else:
            jobs = client.list_jobs(
                active_only=options["active"],
                foreign=options["foreign"],
                **job_table.build_list_options(options),
            )
            _print_jobs(jobs, options["output"])


def _print_jobs(jobs: Sequence["wire.Job"], form: str) -> None:
    if form == "json":
        json_lines.print_json([asking.encode_message(job) for job in jobs])
        return
    if not jobs:
        click.echo("there are no jobs", err=True)
        return
    now = datetime.now(timezone.utc)
    click.echo(
        "\n".join(tables.format_table(job_table.HEADER, [job_table.format_row(job, now) for job in jobs]))
    )

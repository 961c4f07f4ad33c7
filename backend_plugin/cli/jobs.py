"""``kfpytorch jobs``: lists the jobs of a server, or watches them."""

from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, job_table

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
            selection = {"active_only": options["active"], "foreign": options["foreign"]}
            jobs = client.list_jobs(**selection, **job_table.build_list_options(options))
            now = datetime.now(timezone.utc)
            row = partial(job_table.format_row, now=now)
            asking.print_messages(jobs, options["output"], job_table.HEADER, row, "there are no jobs")

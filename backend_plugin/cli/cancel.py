"""``kfpytorch cancel``: cancel a job permanently."""

from typing import Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, job_table, json_lines

_HELP: Final = """Cancel JOB permanently. Flyte receives a failure with the reason, and does not retry.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch cancel f1-n0-0 --reason "the data is wrong"
"""


@click.command(name="cancel", help=_HELP)
@click.argument("job")
@click.option("--reason", metavar="TEXT", default="", help="Reason, which Flyte shows.")
@asking.namespace_option
@asking.server_options
@asking.output_option("text")
def command(**options: Any) -> None:
    """Run ``kfpytorch cancel``."""
    with asking.exit_on_error():
        place = job_table.get_request_options(options)
        done = client.cancel_job(options["job"], reason=options["reason"], **place)
        if options["output"] == "json":
            json_lines.print_json(asking.encode_message(done))
        elif done.already_finished:
            click.echo(f"{done.job.name} has ended already: {done.job.verdict.phase}")
        else:
            click.echo(f"{done.job.name} is cancelled: {done.job.verdict.phase}; it was {done.phase_before}")

"""``kfpytorch wait``: waits until a job has ended, and exits with its result."""

import sys
from typing import Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, command_errors, job_table, json_lines
from backend_plugin.core import printable

_HELP: Final = """Wait until JOB has ended.

The exit code is 0 if it succeeded, 1 if it failed, and 4 if it has not ended within the timeout.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch wait f1-n0-0
  $ kfpytorch wait f1-n0-0 --timeout 30m
"""
_FAILED: Final = 1
_TIMEOUT: Final = 4


@click.command(name="wait", help=_HELP)
@click.argument("job")
@asking.timeout_option("The longest time to wait, such as 90s or 1h30m. Default: no limit.")
@asking.namespace_option
@asking.server_options
@asking.output_option("text")
def command(**options: Any) -> None:
    """Run ``kfpytorch wait``."""
    with asking.exit_on_error():
        try:
            job = client.wait_for_job(
                options["job"], timeout=options["timeout"], **job_table.get_request_options(options)
            )
        except client.NotEnded as error:
            command_errors.exit_with_error(error, _TIMEOUT)
        if options["output"] == "json":
            json_lines.print_json(asking.encode_message(job))
        else:
            click.echo(printable.escape(f"{job.name} has ended: {job.verdict.phase}"))
            if job.verdict.phase != "SUCCEEDED":
                click.echo(printable.escape(job.verdict.message))
        if job.verdict.phase != "SUCCEEDED":
            sys.exit(_FAILED)

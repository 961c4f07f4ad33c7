"""``kfpytorch health``: a health check for exec probes, where a gRPC probe cannot use TLS."""

import sys
from typing import Any

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking

_HELP = """Check that a server is ready: the exit code is 0 if it is, and 1 if it is not or does not answer.

\b
  $ kfpytorch health
  $ kfpytorch health --service liveness --tls-server-name kfpytorch-backend.kfpytorch.svc
"""


@click.command(name="health", help=_HELP)
@click.option(
    "--service",
    metavar="NAME",
    default="",
    help="liveness checks only that the server answers. Default: readiness.",
)
@asking.server_options
def command(**options: Any) -> None:
    """Run ``kfpytorch health``."""
    server = asking.read_server(options, options["server"])
    with asking.exit_on_error():
        status = client.check_health(options["service"], server=server)
        asking.print_line(status)
    sys.exit(0 if status == client.SERVING else 1)

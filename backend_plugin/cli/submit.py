"""``kfpytorch submit``: runs a task of a Python file through a running server."""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import rich_click as click

from backend_plugin.cli import asking, command_errors, task_execution, task_options
from backend_plugin.shell import stop_signals

_HELP: Final = """Run TASK in FILE through a running server, from its Python file to its outputs.

The command sends the requests that FlytePropeller would send, and prints what Flyte's console would show. The
server must be able to read the code of the task and the files of this machine, as `kfpytorch serve` does.

\b
  $ kfpytorch submit train.py train_model --input epochs=2
"""
_FAILED: Final = 1


@click.command(name="submit", help=_HELP)
@task_options.add(needs_file=True)
@asking.server_options
def command(**options: Any) -> None:
    """Run ``kfpytorch submit``."""
    with (
        asking.exit_on_error(),
        stop_signals.exit_on_signals(),
        tempfile.TemporaryDirectory(prefix="kfpytorch-submit-") as folder,
        command_errors.exit_on_invalid_input(),
    ):
        found, requested = task_execution.read_request(options, Path(folder))
        server = asking.read_server(options, options["server"])
        task_execution.print_title(found.template.id.name)
        if not task_execution.run_execution(server, Path(folder) / "store", found, requested):
            sys.exit(_FAILED)

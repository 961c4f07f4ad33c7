"""``kfpytorch stacks``: prints the stack of each rank of the local runs."""

import sys

import rich_click as click

from kfpytorch_common import positions

_HELP = """Print the stack of each rank of your runs on this machine, without stopping them.

\b
  $ kfpytorch stacks
  $ kfpytorch stacks 12345
  $ kubectl exec POD -- kfpytorch stacks

PROCESS is the process id of a `pyflyte run`, or of a Python program that calls a task. The exit code is 1 if
there is no such run.
"""
# The longest wait for a local run. It answers within a second, except while it starts or stops.
_PATIENCE = 5.0


@click.command(name="stacks", help=_HELP)
@click.argument("process", type=int, required=False)
def command(process: int | None) -> None:
    """Print the stacks of the ranks of all local runs, or of the run with this process id."""
    answers = [positions.request_positions(path, _PATIENCE) for path in positions.list_sockets()]
    # The first line of a run is "process NUMBER", followed by ", logs in DIRECTORY" if it has log files.
    firsts = ("",) if process is None else (f"process {process},", f"process {process}\n")
    shown = [text for text in answers if text and text.startswith(firsts)]
    if not shown:
        sys.exit(f"there is no run{'' if process is None else f' of process {process}'} on this machine")
    click.echo("\n".join(shown), nl=False)

"""``kfpytorch submit``: runs a task of a Python file through a running server.

It prints the phases and messages that Flyte's console would show. `demo` uses the same output.
"""

import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import command_errors, command_io, sample_attempt, tables
from backend_plugin.shell import stop_signals

if TYPE_CHECKING:
    from backend_plugin.cli.propeller_emulator import End
    from backend_plugin.cli.python_file import LoadedTask

_HELP: Final = """Run TASK in FILE through a running server, from its Python file to its outputs.

The command sends the requests that FlytePropeller would send, and prints what Flyte's console would show. The
server must be able to read the code of the task and the files of this machine, as `kfpytorch serve` does.

\b
  $ kfpytorch submit train.py train_model --input epochs=2
"""
_FAILED: Final = 1
_INDENT: Final = 24
WIDTH: Final = 110
"""The maximum width of the printed lines, in characters."""


@click.command(name="submit", help=_HELP)
@sample_attempt.add_options(needs_file=True)
@command_io.server_options
def command(**options: Any) -> None:
    """Run ``kfpytorch submit``: run a task of a Python file through a running server."""
    with (
        command_io.exit_on_error(),
        stop_signals.exit_on_signals(),
        tempfile.TemporaryDirectory(prefix="kfpytorch-submit-") as folder,
        command_errors.exit_on_invalid_input(),
    ):
        found, execution, inputs = read_request(options, Path(folder))
        server = command_io.read_server(options, options["server"])
        client.check_health(server=server)  # Without a server, an execution would only report a failed task.
        print_title(found.template.id.name)
        if not run_execution(server, Path(folder) / "store", found, execution, inputs):
            sys.exit(_FAILED)


def read_request(options: Mapping[str, Any], folder: Path) -> tuple["LoadedTask", str, Mapping[str, str]]:
    """Return the task of a command, a name for its execution, and its inputs.

    The name of the execution is derived from the name of `folder`, a temporary directory.
    """
    task = load_task(Path(options["file"]), options["task"], options["image"])
    name = folder.name.removeprefix("kfpytorch-").lower().replace("_", "x")
    return task, name, sample_attempt.parse_inputs(options["inputs"], task.template)


def run_execution(
    server: client.Address, store: Path, task: "LoadedTask", execution: str, inputs: Mapping[str, str]
) -> bool:
    """Run a task through a server and print its phases; return True if it succeeded.

    `store` is the directory of the task's inputs and outputs.
    """
    from backend_plugin.cli import propeller_emulator

    node = propeller_emulator.TaskNode(
        template=task.template, inputs=task.encode_inputs(inputs), store=store, execution=execution
    )
    began, end, links = time.monotonic(), None, set[tuple[str, str]]()
    with (
        client.open_channel(server) as (channel, metadata),
        closing(propeller_emulator.PropellerEmulator(channel, metadata).run_node(node)) as walk,
    ):
        for event in walk:
            if isinstance(event, propeller_emulator.ReportedPhase):
                job = _format_job(server, execution) if event.phase == "QUEUED" else ""
                new = [f"{name}: {uri}" for name, uri in event.logs if (name, uri) not in links]
                _print_entry(event.phase, [*(event.message or job).splitlines(), *new])
                links |= set(event.logs)
            else:
                end = event
                _print_end(event)
    command_io.print_line(f"  ({time.monotonic() - began:.0f} s)")
    return isinstance(end, propeller_emulator.NodeSucceeded)


def _format_job(server: client.Address, execution: str) -> str:
    try:
        job = client.get_job(execution, server=server)
    except client.NotFound:  # The create request was rejected; the next phase contains the reason.
        return ""
    return f"job {job.name} in namespace {job.namespace}"


def _print_end(end: "End") -> None:
    from backend_plugin.cli import propeller_emulator, python_file

    if isinstance(end, propeller_emulator.NodeSucceeded):
        outputs = python_file.read_outputs(end.outputs)
        _print_entry("SUCCEEDED", [f"{name} = {value!r}" for name, value in sorted(outputs.items())])
    else:
        _print_entry("FAILED", [end.code, *end.message.splitlines()])


def _print_entry(word: str, texts: Sequence[str]) -> None:
    """Print the label `word`, and beside it the lines `texts`, wrapped to `WIDTH` columns."""
    lines = [part for line in texts for part in _wrap_line(line)]
    label = word.ljust(_INDENT - 2)
    if colour := tables.get_colour(word):
        label = click.style(label, fg=colour)
    command_io.print_line(f"  {label}{lines[0]}" if lines else f"  {label}".rstrip())
    for line in lines[1:]:
        command_io.print_line(" " * _INDENT + line)


def _wrap_line(line: str) -> Sequence[str]:
    """Wrap a line; a line with a URL stays whole, so that it can be copied."""
    if "://" in line:
        return [line]
    begin = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(
        line, WIDTH - _INDENT, subsequent_indent=begin, break_long_words=False, break_on_hyphens=False
    )


def print_title(text: str) -> None:
    """Print a title after an empty line."""
    command_io.print_line("\n" + click.style(text, bold=True))


def load_task(path: Path, task: str | None, image: str | None) -> "LoadedTask":
    """Return the task named `task` in a Python file; without a name, the only task of the file.

    `image` is the image for a task that sets none.

    Raises:
        UnusableInput: If the file does not exist, is not a Python file, cannot be imported, or has no such
            task.
    """
    if not path.exists():
        raise command_errors.Misused(f"{path}: there is no such file")
    if path.suffix != ".py" or not path.is_file():
        raise command_errors.Misused(f"{path}: is not a Python file; name a .py file with a @task")
    before = signal.getsignal(signal.SIGINT)
    from backend_plugin.cli import python_file

    # flytekit exits the process on Ctrl-C, but the command has to abort its task first.
    signal.signal(signal.SIGINT, before)
    return python_file.load_task(path, task, image=image)

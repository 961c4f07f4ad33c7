"""``kfpytorch demo``: runs a task on this machine, from its Python file to its outputs.

The demo starts a server as a separate process, calls it as Flyte does, and prints the phases of the task.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, command_errors, commands, demo_tasks, tables
from backend_plugin.shell import server_file, stop_signals

if TYPE_CHECKING:
    from backend_plugin.cli.propeller_emulator import End, ReportedPhase
    from backend_plugin.cli.python_file import LoadedTask

_HELP: Final = """Run a task on this machine, from its Python file to its outputs.

The command starts a server with an embedded cluster, and sends it the requests that FlytePropeller would
send. It prints what Flyte's console would show. Without FILE it runs two small tasks, and one of them fails.

\b
  $ kfpytorch demo
  $ kfpytorch demo train.py train_model --input epochs=2
  $ kfpytorch demo train.py train_model --running
"""
_INDENT: Final = 24
_WIDTH: Final = 110
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05
_TAIL: Final = 20
_FAILED: Final = 1


@click.command(name="demo", help=_HELP)
@click.argument("file", required=False)
@click.argument("task", required=False)
@click.option(
    "--input", "-i", "inputs", multiple=True, metavar="K=V", help="An input of the task, as JSON or text."
)
@click.option("--image", metavar="NAME", help="Image of tasks that set none. Default: flytekit's image.")
@click.option("--running", is_flag=True, help="Use the running server, which must find the task's code.")
@asking.server_options
def command(**said: Any) -> None:
    """Run ``kfpytorch demo``."""
    with (
        asking.exit_on_error(),
        stop_signals.exit_on_signals(),
        tempfile.TemporaryDirectory(prefix="kfpytorch-demo-") as folder,
    ):
        try:
            if said["file"] is None:
                _run_demo_tasks(Path(folder))
            elif not _run_user_task(Path(folder), said):
                sys.exit(_FAILED)
        except command_errors.InvalidInput as error:
            command_errors.exit_with_error(error)


# ---- output


def _run_demo_tasks(folder: Path) -> None:
    """Run the demo's own tasks, one that succeeds and one that fails, and the commands that show them."""
    if importlib.util.find_spec("torch") is None:
        raise command_errors.InvalidInput(
            "the demo needs torch, which is not installed; run: pip install torch"
        )
    code = folder / "code"
    code.mkdir()
    path = code / f"{demo_tasks.NAME}.py"
    path.write_text(demo_tasks.SOURCE, encoding="utf-8")
    learn, read_shards = (_load_task(path, name, None) for name in ("learn", "read_shards"))
    with _run_server(folder, code) as state:
        _print_title("1. A task that trains: Elastic, two nodes with two ranks each")
        _run_execution(str(state), folder / "store", learn, _DemoExecution("demo1", {}))
        _print_title("2. A task that fails: PyTorch, a master and a worker; rank 1 raises, and rank 0 waits")
        _run_execution(str(state), folder / "store", read_shards, _DemoExecution("demo2", {}))
        _print_title("3. Commands that query the server")
        if not sys.stdout.isatty():
            os.environ.setdefault("COLUMNS", str(_WIDTH))
        for typed in (("jobs",), ("logs", "demo1", "--rank", "0")):
            asking.print_line(f"$ kfpytorch {' '.join(typed)}")
            commands.kfpytorch.main([*typed, "--server", str(state)], standalone_mode=False)


def _run_user_task(folder: Path, said: Mapping[str, Any]) -> bool:
    """Run a task of the user; return True if it succeeded."""
    found, inputs = _load_task(Path(said["file"]), said["task"], said["image"]), _parse_pairs(said["inputs"])
    execution = f"demo-{folder.name.rpartition('-')[2]}".lower().replace("_", "x")
    with ExitStack() as stack:
        server = asking.read_server(said, said["server"])
        if server.address is None and not said["running"]:
            server = client.Server(address=str(stack.enter_context(_run_server(folder, found.root))))
        _print_title(found.template.id.name)
        return _run_execution(server, folder / "store", found, _DemoExecution(execution, inputs))


class _DemoExecution(NamedTuple):
    """An execution of a task."""

    execution: str
    inputs: Mapping[str, str]


def _run_execution(server: client.Address, store: Path, found: "LoadedTask", asked: _DemoExecution) -> bool:
    """Print the phases of an execution; return True if it succeeded."""
    from backend_plugin.cli import propeller_emulator

    node = propeller_emulator.TaskNode(
        template=found.template,
        inputs=found.encode_inputs(asked.inputs),
        store=store,
        execution=asked.execution,
    )
    began, end, links = time.monotonic(), None, set[tuple[str, str]]()
    with (
        client.open_channel(server) as (channel, metadata),
        closing(propeller_emulator.PropellerEmulator(channel, metadata).run_node(node)) as walk,
    ):
        for seen in walk:
            if isinstance(seen, propeller_emulator.ReportedPhase):
                job = _format_job(server, asked.execution) if seen.phase == "QUEUED" else ""
                _print_phase(seen, job, [link for link in seen.logs if link not in links])
                links |= set(seen.logs)
            else:
                end = seen
                _print_end(seen, found)
    asking.print_line(f"  ({time.monotonic() - began:.0f} s)")
    return isinstance(end, propeller_emulator.NodeSucceeded)


def _format_job(server: client.Address, execution: str) -> str:
    try:
        job = client.get_job(execution, server=server)
    except client.NotFound:  # The create request was rejected; the next phase contains the reason.
        return ""
    return f"job {job.name} in namespace {job.namespace}"


def _print_phase(seen: "ReportedPhase", message: str, links: Sequence[tuple[str, str]]) -> None:
    said = (seen.message or message).splitlines()
    _print_entry(seen.phase, [*said, *(f"{name}: {uri}" for name, uri in links)])


def _print_end(end: "End", found: "LoadedTask") -> None:
    from backend_plugin.cli import propeller_emulator

    if isinstance(end, propeller_emulator.NodeSucceeded):
        outputs = found.decode_outputs(end.outputs)
        _print_entry("SUCCEEDED", [f"{name} = {value!r}" for name, value in outputs.items()])
    else:
        _print_entry("FAILED", [end.code, *end.message.splitlines()])


def _print_entry(word: str, said: Sequence[str]) -> None:
    """Print a label and its text, wrapped to the width of the page."""
    lines = [part for line in said for part in _wrap_line(line)]
    label = word.ljust(_INDENT - 2)
    if colour := tables.get_colour(word) if tables.is_coloured() else None:
        label = click.style(label, fg=colour)
    asking.print_line(f"  {label}{lines[0]}" if lines else f"  {label}".rstrip())
    for line in lines[1:]:
        asking.print_line(" " * _INDENT + line)


def _wrap_line(line: str) -> Sequence[str]:
    """Wrap a line; a line with a URL stays whole, so that it can be copied."""
    if "://" in line:
        return [line]
    begin = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(
        line, _WIDTH - _INDENT, subsequent_indent=begin, break_long_words=False, break_on_hyphens=False
    )


def _print_title(text: str) -> None:
    asking.print_line("\n" + click.style(text, bold=True))


# ---- input


def _load_task(path: Path, task: str | None, image: str | None) -> "LoadedTask":
    if path.suffix != ".py" or not path.is_file():
        raise command_errors.Misused(f"{path}: is not a Python file; name a .py file with a @task")
    before = signal.getsignal(signal.SIGINT)
    from backend_plugin.cli import python_file

    # flytekit exits the process on Ctrl-C, but the demo has to abort its task first.
    signal.signal(signal.SIGINT, before)
    return python_file.load_task(path, task, image=image)


def _parse_pairs(inputs: Sequence[str]) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in inputs]
    if bare := [name for name, equals, _ in pairs if not equals]:
        raise command_errors.Misused(f"--input {bare[0]}: has no value; write --input {bare[0]}=VALUE")
    return {name: value for name, _, value in pairs}


# ---- the server


@contextmanager
def _run_server(folder: Path, code: Path) -> Iterator[Path]:
    """Run a server and yield its state directory. The server and its jobs end with the block."""
    state, log = folder / "state", folder / "server.log"
    state.mkdir()
    options = ["--cluster", "embedded", "--port", "0", "--state-dir", str(state), "--code-dir", str(code)]
    asking.print_line("$ kfpytorch serve --cluster embedded")
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", "from backend_plugin.cli import main; main()", "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # The demo handles Ctrl-C itself: it aborts the task first and then stops the server.
            start_new_session=True,
        )
    try:
        _wait_until_started(server, state, log)
        yield state
    finally:
        _stop_server(server)


def _wait_until_started(server: "subprocess.Popen[Any]", state: Path, log: Path) -> None:
    began = time.monotonic()
    while server_file.read(state) is None:
        if server.poll() is not None or time.monotonic() - began > _START_SECONDS:
            told = log.read_text(errors="replace").splitlines()[-_TAIL:]
            raise command_errors.InvalidInput(
                "\n  ".join(["the server did not start; the last lines of its log:", *told])
            )
        time.sleep(_LOOK_SECONDS)
    nodes = client.list_nodes(server=str(state))
    asking.print_line(f"  {len(nodes)} nodes, emulated on this machine")


def _stop_server(server: "subprocess.Popen[Any]") -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()

"""``kfpytorch demo``: a task's whole road, from its Python file to its outputs, on this machine.

Composes a server, the tasks and what is seen of them. The server is a process of its own, as it is for Flyte.
"""

import importlib.util
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, commands, demo_task, ends, tables
from backend_plugin.shell import discovery

if TYPE_CHECKING:
    from backend_plugin.cli.python_file import Found
    from backend_plugin.cli.road import End, Shown

_HELP: Final = """Walk a task's whole road on this machine: from its Python file to its outputs.

A server with an embedded cluster is started and asked what FlytePropeller would ask it; what Flyte's
console would show is printed. Without FILE two small tasks are run, and one of them fails.

\b
  $ kfpytorch demo
  $ kfpytorch demo train.py train_model --input epochs=2
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
    "--input", "-i", "inputs", multiple=True, metavar="K=V", help="An input of the task; JSON, or text."
)
@click.option("--image", metavar="NAME", help="The image of tasks that name none. Default: flytekit's own.")
def command(file: str | None, task: str | None, inputs: Sequence[str], image: str | None) -> None:
    """``kfpytorch demo``, of what was typed."""
    with asking.answered(), tempfile.TemporaryDirectory(prefix="kfpytorch-demo-") as folder:
        try:
            if file is None:
                _own(Path(folder))
            elif not _one(Path(folder), _found(Path(file), task, image), _pairs(inputs)):
                sys.exit(_FAILED)
        except ends.Unreadable as error:
            ends.refuse(error)


# ---- what is shown


def _own(folder: Path) -> None:
    """The demo's own tasks: one that ends well, one that does not, and the commands that tell of them."""
    if importlib.util.find_spec("torch") is None:
        raise ends.Unreadable(
            "the demo trains with torch, which is not installed; write: "
            'pip install "flytekitplugins-kfpytorch[elastic]"'
        )
    code = folder / "code"
    code.mkdir()
    path = code / f"{demo_task.NAME}.py"
    path.write_text(demo_task.SOURCE, encoding="utf-8")
    found = _found(path, None, None)
    with _server(folder, code) as state:
        _title("1. A task that trains: Elastic, two nodes with two ranks each")
        _walk(state, folder, found, execution="demo1", inputs={})
        _title("2. The same task, and rank 1 raises an exception half way")
        _walk(state, folder, found, execution="demo2", inputs={"broken_rank": "1"})
        _title("3. What people ask the server")
        for typed in (("jobs",), ("logs", "demo1", "--rank", "0")):
            asking.say(f"$ kfpytorch {' '.join(typed)}")
            commands.kfpytorch.main([*typed, "--server", str(state)], standalone_mode=False)


def _one(folder: Path, found: "Found", inputs: Mapping[str, str]) -> bool:
    """A task of the person's own; gives whether it ended well."""
    with _server(folder, found.root) as state:
        _title(found.template.id.name)
        return _walk(state, folder, found, execution="demo1", inputs=inputs)


def _walk(state: Path, folder: Path, found: "Found", *, execution: str, inputs: Mapping[str, str]) -> bool:
    """Print what is seen of an execution; gives whether it ended well."""
    from backend_plugin.cli import road

    node = road.Node(
        template=found.template, inputs=found.inputs(inputs), store=folder / "store", execution=execution
    )
    began, end = time.monotonic(), None
    with (
        client.connected(str(state)) as (channel, metadata),
        closing(road.Road(channel, metadata).walk(node)) as walk,
    ):
        for seen in walk:
            if isinstance(seen, road.Shown):
                _print_phase(seen, _job(state, execution) if seen.phase == "QUEUED" else "")
            else:
                end = seen
                _print_end(seen, found)
    asking.say(f"  ({time.monotonic() - began:.0f} s)")
    return isinstance(end, road.Succeeded)


def _job(state: Path, execution: str) -> str:
    job = client.get_job(execution, server=str(state))
    return f"job {job.name} in namespace {job.namespace}"


def _print_phase(seen: "Shown", message: str) -> None:
    links = [f"{name}: {uri}" for name, uri in seen.logs]
    _print(seen.phase, [*(seen.message or message).splitlines(), *links])


def _print_end(end: "End", found: "Found") -> None:
    from backend_plugin.cli import road

    if isinstance(end, road.Succeeded):
        outputs = found.outputs(end.outputs)
        _print("SUCCEEDED", [f"{name} = {value!r}" for name, value in outputs.items()])
    else:
        _print("FAILED", [end.code, *end.message.splitlines()])


def _print(word: str, said: Sequence[str]) -> None:
    """A word, and what there is to say to it, in lines that a page can hold."""
    lines = [part for line in said for part in _wrapped(line)]
    label = word.ljust(_INDENT - 2)
    if colour := tables.colour_of(word) if tables.coloured() else None:
        label = click.style(label, fg=colour)
    asking.say(f"  {label}{lines[0]}" if lines else f"  {label}".rstrip())
    for line in lines[1:]:
        asking.say(" " * _INDENT + line)


def _wrapped(line: str) -> Sequence[str]:
    begin = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(
        line, _WIDTH - _INDENT, subsequent_indent=begin, break_long_words=False, break_on_hyphens=False
    )


def _title(text: str) -> None:
    asking.say("\n" + click.style(text, bold=True))


# ---- what is asked for


def _found(path: Path, task: str | None, image: str | None) -> "Found":
    if path.suffix != ".py" or not path.is_file():
        raise ends.Unreadable(f"{path}: is no Python file; the demo takes one with a @task")
    from backend_plugin.cli import python_file

    return python_file.found(path, task, image=image)


def _pairs(inputs: Sequence[str]) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in inputs]
    if bare := [name for name, equals, _ in pairs if not equals]:
        raise ends.Unreadable(f"--input {bare[0]}: has no value; write --input {bare[0]}=VALUE")
    return {name: value for name, _, value in pairs}


# ---- the server


@contextmanager
def _server(folder: Path, code: Path) -> Iterator[Path]:
    """A server of its own; gives its state directory. It ends, and all its jobs with it, with the block."""
    state, log = folder / "state", folder / "server.log"
    state.mkdir()
    options = ["--cluster", "embedded", "--port", "0", "--state", str(state), "--code", str(code)]
    asking.say("$ kfpytorch serve --cluster embedded")
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", "from backend_plugin.cli import main; main()", "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # A Ctrl-C is ours to answer: first the task is aborted, then the server ends.
            start_new_session=True,
        )
    try:
        _wait(server, state, log)
        yield state
    finally:
        _stop(server)


def _wait(server: "subprocess.Popen[Any]", state: Path, log: Path) -> None:
    began = time.monotonic()
    while discovery.read(state) is None:
        if server.poll() is not None or time.monotonic() - began > _START_SECONDS:
            told = log.read_text(errors="replace").splitlines()[-_TAIL:]
            raise ends.Unreadable("\n  ".join(["the server does not start; it says:", *told]))
        time.sleep(_LOOK_SECONDS)
    nodes = client.list_nodes(server=str(state))
    asking.say(f"  {len(nodes)} nodes, which are processes of this machine")


def _stop(server: "subprocess.Popen[Any]") -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()

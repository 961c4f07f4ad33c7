"""``kfpytorch demo``: runs a task on this machine, from its Python file to its outputs."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, command_errors, commands, demo_tasks, task_execution, task_options
from backend_plugin.cli.task_execution import (
    WIDTH,
    RequestedExecution,
    load_task,
    print_title,
    run_execution,
)
from backend_plugin.shell import server_file, stop_signals

_HELP: Final = """Run a task on this machine, from its Python file to its outputs.

The command starts a server with an embedded cluster, and sends it the requests that FlytePropeller would
send. It prints what Flyte's console would show. Without FILE it runs two small tasks, and one of them fails.

\b
  $ kfpytorch demo
  $ kfpytorch demo train.py train_model --input epochs=2
"""
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05
_TAIL: Final = 20
_FAILED: Final = 1


@click.command(name="demo", help=_HELP)
@task_options.add()
def command(**options: Any) -> None:
    """Run ``kfpytorch demo``."""
    with (
        asking.exit_on_error(),
        stop_signals.exit_on_signals(),
        tempfile.TemporaryDirectory(prefix="kfpytorch-demo-") as folder,
        command_errors.exit_on_invalid_input(),
    ):
        if options["file"] is None:
            _run_demo_tasks(Path(folder))
        elif not _run_user_task(Path(folder), options):
            sys.exit(_FAILED)


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
    learn, read_shards = (load_task(path, name, None) for name in ("learn", "read_shards"))
    with _run_server(folder, code) as state:
        print_title("1. A task that trains: Elastic, two nodes with two ranks each")
        run_execution(str(state), folder / "store", learn, RequestedExecution("demo1", {}))
        print_title("2. A task that fails: PyTorch, a master and a worker; rank 1 raises, and rank 0 waits")
        run_execution(str(state), folder / "store", read_shards, RequestedExecution("demo2", {}))
        print_title("3. Commands that query the server")
        if not sys.stdout.isatty():
            os.environ.setdefault("COLUMNS", str(WIDTH))
        for typed in (("jobs",), ("logs", "demo1", "--rank", "0")):
            asking.print_line(f"$ kfpytorch {' '.join(typed)}")
            commands.kfpytorch.main([*typed, "--server", str(state)], standalone_mode=False)


def _run_user_task(folder: Path, options: Mapping[str, Any]) -> bool:
    """Run a task of the user; return True if it succeeded."""
    task, requested = task_execution.read_request(options, folder)
    with _run_server(folder, task.root) as state:
        print_title(task.template.id.name)
        return run_execution(client.Server(address=str(state)), folder / "store", task, requested)


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
            last_lines = log.read_text(errors="replace").splitlines()[-_TAIL:]
            raise command_errors.InvalidInput(
                "\n  ".join(["the server did not start; the last lines of its log:", *last_lines])
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

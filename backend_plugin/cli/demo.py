"""``kfpytorch demo``: runs a task on this machine, from its Python file to its outputs."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import command_errors, command_io, commands, sample_attempt, submit
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
_NAME: Final = "training"
_SOURCE: Final = '''\
"""A straight line, learnt on four ranks; and a task that fails."""

import os
import time

from flytekit import task
from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker


@task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def learn(steps: int = 60) -> float:
    # Imported here, so that this file can be imported without torch.
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = torch.tensor(0.0)
    for step in range(steps):
        x = torch.rand(32, 1)
        loss = (model(x) - (3 * x + 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:2}: loss {loss.item():.3f}", flush=True)
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()
    return round(loss.item(), 4)


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def read_shards() -> int:
    rank = int(os.environ["RANK"])
    if rank == 1:
        raise ValueError("shard 1 has 31 labels for 32 images")
    # A rank waits like this in a collective for a rank that has ended.
    time.sleep(3600)
    return rank
'''
"""The demo's own tasks. It is text, so that the import of this module does not import flytekit or torch."""


@click.command(name="demo", help=_HELP)
@sample_attempt.add_options()
def command(**options: Any) -> None:
    """Run ``kfpytorch demo``."""
    with (
        command_io.exit_on_error(),
        stop_signals.exit_on_signals(),
        tempfile.TemporaryDirectory(prefix="kfpytorch-demo-") as folder,
        command_errors.exit_on_invalid_input(),
    ):
        if options["file"] is None:
            _run_demo_tasks(Path(folder))
            return
        task, execution, inputs = submit.read_request(options, Path(folder))
        with _run_server(Path(folder), task.root) as state:
            submit.print_title(task.template.id.name)
            server = client.Server(address=str(state))
            ended_well = submit.run_execution(server, Path(folder) / "store", task, execution, inputs)
        if not ended_well:
            sys.exit(_FAILED)


def _run_demo_tasks(folder: Path) -> None:
    """Run the demo's own tasks, one that succeeds and one that fails, and the commands that show them."""
    if importlib.util.find_spec("torch") is None:
        raise command_errors.UnusableInput(
            "the demo needs torch, which is not installed; run: pip install torch"
        )
    code = folder / "code"
    code.mkdir()
    path = code / f"{_NAME}.py"
    path.write_text(_SOURCE, encoding="utf-8")
    learn, read_shards = (submit.load_task(path, name, None) for name in ("learn", "read_shards"))
    with _run_server(folder, code) as state:
        submit.print_title("1. A task that trains: Elastic, two nodes with two ranks each")
        submit.run_execution(str(state), folder / "store", learn, "demo1", {})
        submit.print_title(
            "2. A task that fails: PyTorch, a master and a worker; rank 1 raises, and rank 0 waits"
        )
        submit.run_execution(str(state), folder / "store", read_shards, "demo2", {})
        submit.print_title("3. Commands that query the server")
        if not sys.stdout.isatty():
            os.environ.setdefault("COLUMNS", str(submit.WIDTH))
        for typed in (("jobs",), ("logs", "demo1", "--rank", "0")):
            command_io.print_line(f"$ kfpytorch {' '.join(typed)}")
            commands.kfpytorch.main([*typed, "--server", str(state)], standalone_mode=False)


@contextmanager
def _run_server(folder: Path, code: Path) -> Iterator[Path]:
    """Run a server with an embedded cluster, and yield its state directory, which is in `folder`.

    `code` is the directory with the code of the tasks. The server and its jobs end with the ``with`` block.
    """
    state, log = folder / "state", folder / "server.log"
    state.mkdir()
    options = ["--cluster", "embedded", "--port", "0", "--state-dir", str(state), "--code-dir", str(code)]
    command_io.print_line("$ kfpytorch serve --cluster embedded")
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
            raise command_errors.UnusableInput(
                "\n  ".join(["the server did not start; the last lines of its log:", *last_lines])
            )
        time.sleep(_LOOK_SECONDS)
    command_io.print_line(f"  {len(client.list_nodes(server=str(state)))} nodes, emulated on this machine")


def _stop_server(server: "subprocess.Popen[Any]") -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()

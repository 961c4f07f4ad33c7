"""Measure the time until the first line of a task's function, through the connector and as a plain command.

``python benchmarks/scripts/first_line.py TIMES``: the last line is JSON with the seconds of each side. The
task imports torch, as a training task does; the embedded cluster needs torch for its stores on loopback.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from backend_plugin import client
from backend_plugin.cli import propeller_emulator, python_file
from backend_plugin.core import settings
from backend_plugin.core.pipeline import plan
from backend_plugin.shell import create_request, server_file

TASK = """
import time
import torch
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker

@task(task_config=PyTorch(worker=Worker(replicas=0)), environment={"OMP_NUM_THREADS": "1"})
def first_line(path: str) -> None:
    with open(path, "w") as file:
        file.write(repr(time.time()))
"""
PATIENCE = 60.0


@contextmanager
def run_server(folder: Path) -> Iterator[Path]:
    state = folder / "state"
    program = Path(sys.executable).with_name("kfpytorch")
    command = [str(program), "serve", "--cluster", "embedded", "--port", "0"]
    options = ["--state-dir", str(state), "--code-dir", str(folder), "--output-prefixes", folder.as_uri()]
    process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while not server_file.get_path(state).exists():
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        yield state
    finally:
        process.terminate()
        process.wait()


def write_task(path: Path) -> float:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, "the function never began"
        time.sleep(0.005)
    return float(path.read_text())


def run_through_server(state: Path, node: propeller_emulator.TaskNode, line: Path) -> float:
    with client.open_channel(str(state)) as (channel, metadata):
        began = time.time()
        with closing(propeller_emulator.PropellerEmulator(channel, metadata).run_node(node)) as walk:
            ends = [
                each
                for each in walk
                if isinstance(each, propeller_emulator.NodeSucceeded | propeller_emulator.NodeFailed)
            ]
    assert isinstance(ends[-1], propeller_emulator.NodeSucceeded), ends
    return write_task(line) - began


def measure_alone(folder: Path, node: propeller_emulator.TaskNode, line: Path) -> float:
    node.write_inputs()
    asked = node.build_request(0)
    planned = plan(
        asked.template,
        create_request.read_attempt(asked.task_execution_metadata, asked.output_prefix),
        settings.read({}),
    )
    manifest: Any = planned.manifests[0]
    container = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    variables = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, **variables, "PYTHONPATH": str(folder), "PATH": path, "RANK": "0"}
    command = [*container.get("command", ()), *container["args"]]
    began = time.time()
    subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True)
    return write_task(line) - began


def main(times: int) -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "first.py").write_text(TASK)
    found = python_file.load_task(folder / "first.py", None, image=None)
    taken: dict[str, list[float]] = {"embedded": [], "alone": []}
    with run_server(folder) as state:
        for number in range(times + 1):
            for side in taken:
                line = folder / f"{side}{number}"
                inputs = found.encode_inputs({"path": str(line)})
                node = propeller_emulator.TaskNode(
                    template=found.template,
                    inputs=inputs,
                    store=folder / "store",
                    execution=f"{side[0]}{number}",
                )
                seconds = (
                    run_through_server(state, node, line)
                    if side == "embedded"
                    else measure_alone(folder, node, line)
                )
                if number:  # The first run is the warm-up.
                    taken[side].append(seconds)
    print(json.dumps(taken))


if __name__ == "__main__":
    main(int(sys.argv[1]))

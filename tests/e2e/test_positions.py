"""Positions of the ranks of a run that hangs: on Ctrl-C, on SIGUSR1 and by `kfpytorch stacks`."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from e2e.conftest import PYFLYTE

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

PROGRAM = """
import time

import torch.distributed as dist
from flytekit import task
from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker


def train() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.barrier()


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def elastic() -> None:
    train()


@task(task_config=PyTorch(worker=Worker(replicas=1)))
def replicas() -> None:
    train()
"""
POSITIONS = ["rank 0 at hang.py:13 in train, waiting in barrier", "rank 1 at hang.py:12 in train"]


def wait_for_positions(pyflyte, run):
    """Return the output of `kfpytorch stacks` once both ranks have reached their positions."""
    command = [PYFLYTE.with_name("kfpytorch"), "stacks", str(run.pid)]
    env = {**os.environ, "TMPDIR": str(pyflyte.temporary)}
    while True:
        shown = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
        if shown.splitlines()[1:] == POSITIONS:
            return shown.splitlines()
        assert run.poll() is None
        time.sleep(1)  # The command uses more CPU time than the ranks need to start.


@pytest.mark.parametrize(
    ("task", "fork"), [("elastic", "1"), pytest.param("replicas", "0", marks=pytest.mark.soak)]
)
def test_hanging_run_shows_the_position_of_each_rank(pyflyte, tmp_path, task, fork):
    (tmp_path / "hang.py").write_text(PROGRAM)
    with pyflyte.start(tmp_path / "hang.py", task, FLYTE_KFPYTORCH_FORK=fork) as run:
        first, *_ = wait_for_positions(pyflyte, run)
        logs = first.partition(", logs in ")[2]
        assert Path(logs).is_dir()
        run.send_signal(signal.SIGUSR1)
        lines = iter(run.stderr.readline, "")
        assert [next(line for line in lines if position in line) for position in POSITIONS]
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        rest = run.stderr.read().splitlines()
    assert run.returncode == 1
    expected = [f"interrupted, logs of all ranks in {logs}", *POSITIONS]
    assert [line.removeprefix("kfpytorch  ") for line in rest] == expected


def test_stacks_without_a_run_exits_with_1():
    command = [PYFLYTE.with_name("kfpytorch"), "stacks", "1"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (1, "")

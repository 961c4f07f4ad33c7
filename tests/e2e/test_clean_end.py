"""After every kind of end, the report names the right rank and no process or file remains.

Among the causes are functions that misuse their process, and unusual environments.
"""

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from e2e.conftest import PYFLYTE

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

SCRIPTS = Path(__file__).parent / "scripts"
ROUGH, EAGER = SCRIPTS / "rough.py", SCRIPTS / "eager_flow.py"
RANKS = 4
TASKS = ("nodes", "node", "replicas")
FEW, MANY = (0, 2), (1, *range(3, 100))  # One run with nodes and one with replicas.


def start(pyflyte, seed):
    return pyflyte.start(SCRIPTS / "busy.py", TASKS[seed % len(TASKS)], PIDS=str(pyflyte.home))


def wait_for_ranks(pyflyte):
    deadline = time.monotonic() + 40
    while len(found := [path for path in pyflyte.home.iterdir() if path.name.isdigit()]) < RANKS:
        assert time.monotonic() < deadline, f"only {len(found)} ranks started"
        time.sleep(0.005)
    return {int(path.name): int(path.read_text()) for path in found}


@pytest.mark.parametrize(
    "seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.soak) for seed in MANY)], ids=str
)
def test_killed_rank_is_reported_and_no_process_or_file_remains(pyflyte, seed):
    chance = random.Random(seed)
    started = start(pyflyte, seed)
    of = wait_for_ranks(pyflyte)
    victim = chance.randrange(RANKS)
    time.sleep(chance.uniform(0, 1.5))
    os.kill(of[victim], signal.SIGKILL)
    out, err = started.communicate(timeout=30)
    named = re.search(r"✗ busy\.\w+ failed on rank (\d+) .*\n  killed by SIGKILL", err)
    assert named is not None, err
    assert (int(named[1]), started.returncode) == (victim, 1)
    assert len((out + err).splitlines()) < 35
    assert pyflyte.left() == ([], [])


@pytest.mark.parametrize(
    "signum",
    # Other tests send SIGINT.
    [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGHUP, marks=pytest.mark.soak)],
    ids=lambda s: s.name,
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 25))], ids=str
)
def test_stopped_caller_leaves_no_process_or_file(pyflyte, signum, seed):
    chance = random.Random(seed)
    started = start(pyflyte, seed)
    # In some cases the signal arrives before the ranks exist, in most cases while they train.
    if chance.random() < 0.7 or seed == 0:
        wait_for_ranks(pyflyte)
    time.sleep(chance.uniform(0, 1.5))
    started.send_signal(signum)
    started.communicate(timeout=30)
    assert started.returncode != 0
    assert pyflyte.left() == ([], [])


def test_repeated_interrupts_leave_no_process_or_file(pyflyte):
    started = start(pyflyte, 0)
    wait_for_ranks(pyflyte)
    for _ in range(5):
        started.send_signal(signal.SIGINT)
        time.sleep(0.03)
    started.communicate(timeout=30)
    assert pyflyte.left() == ([], [])


def test_lost_fork_server_is_reported_and_leaves_no_process(pyflyte):
    ran = pyflyte.run(ROUGH, "kills_its_parent")
    assert (ran.code, ran.report[0]) == (1, "✗ rough.kills_its_parent did not run")
    assert ran.report[1].startswith("  ForkServerGone: the process that starts the workers is gone")
    assert len(ran.lines) < 10
    assert pyflyte.left() == ([], [])


def test_failure_is_reported_when_stdout_is_closed(pyflyte):
    command = f"exec {PYFLYTE} run {ROUGH} takes_another_rank >&-"
    ran = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    # The name of a rank is the one with which it was started.
    assert "✗ rough.takes_another_rank failed on rank 1 (node 0)" in ran.stderr
    assert "ValueError: I was rank 1" in ran.stderr


@pytest.mark.soak
def test_eager_workflow_runs_its_tasks_on_all_ranks(pyflyte):
    ran = pyflyte.run(EAGER, "flow", "--seconds", "0")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "4"


def test_stopped_eager_workflow_leaves_no_process_or_file(pyflyte):
    started = pyflyte.start(EAGER, "flow", "--seconds", "100")
    while "[r0] training" not in started.stdout.readline():
        assert started.poll() is None
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=30)
    assert started.returncode != 0
    assert pyflyte.left() == ([], [])

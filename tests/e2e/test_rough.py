"""Functions that misuse their process, and unusual environments."""

import signal
import subprocess
from pathlib import Path

import pytest

from e2e.conftest import PYFLYTE

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

ROUGH = Path(__file__).parent / "scripts" / "rough.py"
EAGER = Path(__file__).parent / "scripts" / "eager_flow.py"


def test_lost_fork_server_is_reported_and_leaves_no_process(pyflyte):
    ran = pyflyte.run(ROUGH, "kills_its_parent")
    assert ran.code == 1
    assert ran.report[0] == "✗ rough.kills_its_parent did not run"
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
    assert started.stdout is not None
    while "[r0] training" not in started.stdout.readline():
        assert started.poll() is None
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=30)
    assert started.returncode != 0
    assert pyflyte.left() == ([], [])

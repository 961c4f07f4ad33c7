"""The output of ranks arrives completely, as whole lines with the rank, and rank 0 uses a terminal."""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pexpect
import pytest
from flytekit import task

from e2e.conftest import MARK, PYFLYTE
from flytekitplugins.kfpytorch import Elastic

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

RANKS = 4


@task(task_config=Elastic(nnodes=2, nproc_per_node=RANKS // 2))
def flood(lines: int) -> None:
    rank = os.environ["RANK"]
    for start in range(0, lines, 1000):
        block = "".join(f"rank {rank} line {number} end\n" for number in range(start, start + 1000))
        sys.stdout.write(block[:-7])  # One write ends within a line, and the next write contains the rest.
        sys.stdout.flush()
        sys.stdout.write(block[-7:])
    sys.stdout.flush()
    os.write(2, f"rank {rank} error end\n".encode())
    os.write(1, f"rank {rank} no line end".encode())


@pytest.fixture
def logs(monkeypatch, tmp_path):
    """Return the directory for logs, and show the output of all ranks."""
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOG_DIR", str(tmp_path))
    monkeypatch.setenv("FLYTE_KFPYTORCH_VERBOSE", "1")
    return tmp_path


def ranks_of(text, pattern):
    """Return the number of matching lines of each rank that have the prefix of that rank."""
    return Counter(map(int, re.findall(rf"^\[r(\d)\] rank \1 {pattern} end$", text, re.MULTILINE)))


@pytest.mark.parametrize("lines", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_output_lines_are_whole_and_complete_under_load(logs, capfd, lines):
    flood(lines=lines)
    out, err = capfd.readouterr()
    assert ranks_of(out, r"line \d+") == dict.fromkeys(range(RANKS), lines)
    assert ranks_of(err, "error") == dict.fromkeys(range(RANKS), 1)
    assert {f"[r{rank}] rank {rank} no line end" for rank in range(RANKS)} <= set(out.splitlines())
    (run,) = logs.iterdir()
    for rank in range(RANKS):
        whole = "".join(f"rank {rank} line {number} end\n" for number in range(lines))
        # The two streams of a rank have no common order.
        log = (run / f"rank{rank}.log").read_text().replace(f"rank {rank} error end\n", "")
        # A failed comparison of the texts would build a diff of them, which needs gigabytes.
        is_complete = log == whole + f"rank {rank} no line end\n"
        assert is_complete, rank


def at_terminal(pyflyte, task, **env):
    return pexpect.spawn(
        str(PYFLYTE),
        ["run", str(Path(__file__).parent / "scripts" / "at_terminal.py"), task],
        env={**os.environ, **pyflyte.env, **env, MARK: pyflyte.mark, "TERM": "xterm"},
        dimensions=(30, 100),
        encoding="utf-8",
        timeout=60,
    )


def test_breakpoint_works_in_rank_0(pyflyte):
    terminal = at_terminal(pyflyte, "debugged", FLYTE_KFPYTORCH_LOCAL="replicas")
    terminal.expect_exact("(Pdb) ")
    terminal.sendline("p answer * 1000")
    terminal.expect_exact("42000")
    terminal.expect_exact("(Pdb) ")
    terminal.sendline("c")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert "42" in terminal.before


def test_interrupt_in_the_debugger_ends_the_run(pyflyte):
    terminal = at_terminal(pyflyte, "debugged")
    terminal.expect_exact("(Pdb) ")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus not in (0, None)
    assert pyflyte.left()[0] == []


def test_progress_bar_is_drawn_on_a_terminal_after_the_prefix(pyflyte):
    terminal = at_terminal(pyflyte, "bar")
    terminal.expect(r"\[r0\] (?:\x1b\[[0-9;]*m)*training")
    terminal.expect("100%")
    terminal.expect_exact("[r0] terminal True")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0

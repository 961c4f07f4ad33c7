"""Rank 0 uses the terminal if one exists."""

import os
from pathlib import Path

import pexpect
import pytest

from e2e.conftest import MARK, PYFLYTE, Pyflyte

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

SCRIPT = Path(__file__).parent / "scripts" / "at_terminal.py"


def at_terminal(pyflyte: Pyflyte, task: str, **env: str) -> "pexpect.spawn[str]":
    return pexpect.spawn(
        str(PYFLYTE),
        ["run", str(SCRIPT), task],
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

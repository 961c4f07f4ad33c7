"""A report is complete in a notebook, and with fresh interpreters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.conftest import FAILURES, Pyflyte

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

CELL = Path(__file__).parent / "scripts" / "cell.py"


def test_notebook_report_contains_the_line_of_the_cell(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, CELL],
        env={**os.environ, "FLYTE_KFPYTORCH_LOG_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()

    assert shown[0].endswith("(user-error): ValueError at /nowhere/cell-1.py:7 in train")
    assert shown[1:3] == ["  ValueError: no data", '    ❱ raise ValueError("no data")']


@pytest.mark.soak
def test_failure_report_is_equal_with_fresh_interpreters(pyflyte: Pyflyte) -> None:
    """As on macOS, where ranks are no forks."""
    ran = pyflyte.run(FAILURES / "exception.py", "train", FLYTE_KFPYTORCH_FORK="0")
    assert ran.code == 1
    assert "failed on rank 1 (" in ran.report[0]
    assert "exception.py:17 in read_batch" in " ".join(ran.report[:3])
    assert pyflyte.left() == ([], [])

"""The output of ranks arrives completely, as whole lines with the rank."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from flytekit import task

from flytekitplugins.kfpytorch import Elastic

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

RANKS = 4


@task(task_config=Elastic(nnodes=2, nproc_per_node=RANKS // 2))
def flood(lines: int) -> None:
    rank = os.environ["RANK"]
    for start in range(0, lines, 1000):
        block = "".join(f"rank {rank} line {number} end\n" for number in range(start, start + 1000))
        # One write ends within a line, and the next write contains the rest.
        sys.stdout.write(block[:-7])
        sys.stdout.flush()
        sys.stdout.write(block[-7:])


@task(task_config=Elastic(nnodes=1, nproc_per_node=RANKS))
def halves() -> None:
    rank = os.environ["RANK"]
    for number in range(20):
        for piece in (f"rank {rank} ", f"half {number} ", "end\n"):
            os.write(1, piece.encode())
            time.sleep(0.002)
        os.write(2, f"rank {rank} error {number} end\n".encode())
    subprocess.run(["echo", f"rank {rank} child end"], check=True)
    os.write(1, f"rank {rank} no line end".encode())


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the directory for logs, and show the output of all ranks."""
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOG_DIR", str(tmp_path))
    monkeypatch.setenv("FLYTE_KFPYTORCH_VERBOSE", "1")
    return tmp_path


def ranks_of(text: str, pattern: str) -> Counter[int]:
    """Return the number of matching lines of each rank that have the prefix of that rank."""
    return Counter(
        int(rank) for rank in re.findall(rf"^\[r(\d)\] rank \1 {pattern} end$", text, re.MULTILINE)
    )


@pytest.mark.parametrize("lines", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_output_lines_are_whole_and_complete_under_load(
    logs: Path, capfd: pytest.CaptureFixture[str], lines: int
) -> None:
    flood(lines=lines)

    assert ranks_of(capfd.readouterr().out, r"line \d+") == dict.fromkeys(range(RANKS), lines)
    (run,) = logs.iterdir()
    # A failed comparison of the texts would build a diff of them, which needs gigabytes.
    wrong = [
        rank
        for rank in range(RANKS)
        if (run / f"rank{rank}.log").read_text()
        != "".join(f"rank {rank} line {number} end\n" for number in range(lines))
    ]
    assert wrong == []


def test_partial_lines_of_ranks_become_whole_lines(capfd: pytest.CaptureFixture[str]) -> None:
    halves()

    out, err = capfd.readouterr()
    assert ranks_of(out, r"half \d+") == dict.fromkeys(range(RANKS), 20)
    assert ranks_of(err, r"error \d+") == dict.fromkeys(range(RANKS), 20)
    assert ranks_of(out, "child") == dict.fromkeys(range(RANKS), 1)
    assert {f"[r{rank}] rank {rank} no line end" for rank in range(RANKS)} <= set(out.splitlines())

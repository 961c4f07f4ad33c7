"""The output of ranks arrives completely, as whole lines with the rank."""

import re
from collections import Counter
from pathlib import Path

import pytest

from e2e.conftest import Pyflyte

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

CHATTY = Path(__file__).parent / "scripts" / "chatty.py"
RANKS = 4


def ranks_of(text: str, pattern: str) -> Counter[int]:
    """Return the number of matching lines of each rank that have the prefix of that rank."""
    return Counter(
        int(rank) for rank in re.findall(rf"^\[r(\d)\] rank \1 {pattern} end$", text, re.MULTILINE)
    )


def logs(pyflyte: Pyflyte) -> dict[int, str]:
    (run,) = (pyflyte.home / "logs").iterdir()
    return {
        rank: (run / f"rank{rank}.log").read_text()
        for rank in range(RANKS)
        if (run / f"rank{rank}.log").exists()
    }


@pytest.mark.parametrize("lines", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_output_lines_are_whole_and_complete_under_load(pyflyte: Pyflyte, lines: int) -> None:
    ran = pyflyte.run(CHATTY, "flood", "--lines", str(lines), timeout=110, FLYTE_KFPYTORCH_VERBOSE="1")

    assert ran.code == 0, ran.err
    assert ranks_of(ran.out, r"line \d+") == dict.fromkeys(range(RANKS), lines)
    written = logs(pyflyte)
    # A failed comparison of the texts would build a diff of them, which needs gigabytes.
    wrong = [
        rank
        for rank in range(RANKS)
        if written.get(rank) != "".join(f"rank {rank} line {number} end\n" for number in range(lines))
    ]
    assert wrong == []


def test_partial_lines_of_ranks_become_whole_lines(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(CHATTY, "halves", FLYTE_KFPYTORCH_VERBOSE="1")

    assert ran.code == 0, ran.err
    assert ranks_of(ran.out, r"half \d+") == dict.fromkeys(range(RANKS), 20)
    assert ranks_of(ran.err, r"error \d+") == dict.fromkeys(range(RANKS), 20)
    assert ranks_of(ran.out, "child") == dict.fromkeys(range(RANKS), 1)
    assert {f"[r{rank}] rank {rank} no line end" for rank in range(RANKS)} <= set(ran.out.splitlines())


def test_default_output_shows_rank_0_and_logs_contain_all_ranks(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(CHATTY, "halves")

    assert set(ranks_of(ran.out + ran.err, r"(?:half|error) \d+")) == {0}
    assert [log.count(" half ") for log in logs(pyflyte).values()] == [20] * RANKS
    assert str(next((pyflyte.home / "logs").iterdir())) in ran.err.splitlines()[-1]


def test_output_of_a_killed_rank_is_kept(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(CHATTY, "last_words")

    assert ran.code == 1
    assert {rank: log for rank, log in logs(pyflyte).items() if rank < 2} == {
        rank: f"rank {rank} last words\n" for rank in range(2)
    }

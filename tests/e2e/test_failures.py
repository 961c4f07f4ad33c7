"""Reports of failing programs fit on one screen, with the root cause and the right rank first."""

import re
from collections.abc import Callable

import pytest

from e2e.conftest import FAILURES, Pyflyte, Ran

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


def test_the_first_line_names_the_exception_and_the_line_of_the_users_code(
    failed: Callable[[str], Ran],
) -> None:
    assert re.sub(r"after [\d.]+ s", "after 1 s", failed("exception").report[0]) == (
        "✗ exception.train failed on rank 1 (node 0) after 1 s (user-error): "
        "ValueError at exception.py:17 in read_batch"
    )


def test_ranks_in_different_collectives_are_shown_with_their_lines(failed: Callable[[str], Ran]) -> None:
    first = failed("other_collective").report[0]

    assert "in broadcast at other_collective.py:17 in train" in first
    assert "in all_reduce at other_collective.py:20 in train" in first


def test_the_error_of_a_data_loader_is_that_of_the_dataset(failed: Callable[[str], Ran]) -> None:
    report = failed("data_loader").report

    assert report[1:4] == [
        "  ValueError: image 1 has no label (in DataLoader worker process 0)",
        "  caused by KeyError: 1, at data_loader.py:21 in __getitem__",
        '    ❱ raise ValueError(f"image {index} has no label") from error',
    ]


def test_who_waited_in_vain_says_for_whom_and_where_that_one_was(failed: Callable[[str], Ran]) -> None:
    ran = failed("missing_rank")

    assert "  it waited for rank 1, which was at missing_rank.py:15 in train" in ran.report[:3]


def test_verbose_shows_the_whole_traceback_and_every_rank(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(FAILURES / "exception.py", "train", FLYTE_KFPYTORCH_VERBOSE="1")

    assert "Traceback (most recent call last):" in ran.err
    assert "[r0] " in ran.err
    assert "[r1] " in ran.err

"""Tests that the parsing time of a hostile text is linear in its length."""

from collections.abc import Callable
from time import process_time

import pytest
from cluster import BEGAN, job, unplaced

from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import error_parser, pending_reasons
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.settings import engine, platform_parsers, value_parsers
from kfpytorch_common.causes import Cause

GAP = " " * 250
CHILD = "\n".join(
    f"{GAP}{line} {GAP}"
    for line in (
        "Root Cause (first observed failure):",
        "[0]:",
        "time :",
        "host :",
        "rank : 0",
        "exitcode : 1",
        "error_file: no traceback follows",
    )
)
REPORT = "✗ failed on " * 20 + " " * 19_000
NODES = "0/1 nodes are available: " + " " * 2_000


def refused(text: str) -> None:
    with pytest.raises(engine.InvalidSettingValue):
        value_parsers.duration(text)


HARD: dict[str, Callable[[], object]] = {
    "torchrun's summary, in many lines": lambda: error_parser.parse_error_file(
        ErrorFile(path="", message=CHILD)
    ),
    "torchrun's summary, in one line": lambda: error_parser.parse_error_file(
        ErrorFile(path="", message=CHILD.replace("\n", " "))
    ),
    "a report of ours": lambda: error_parser.parse_error_file(ErrorFile(path="", message=REPORT)),
    "a scheduler's message": lambda: pending_reasons.format_unschedulable(NODES),
    "a duration without a unit": lambda: refused("1" * 20_000),
}


@pytest.mark.parametrize("read", HARD.values(), ids=HARD)
def test_hostile_text_is_parsed_quickly(read: Callable[[], object]) -> None:
    began = process_time()
    read()
    assert process_time() - began < 0.2


def test_exit_code_with_too_many_digits_is_rejected() -> None:
    with pytest.raises(engine.InvalidSettingValue, match="as an exit code"):
        platform_parsers.causes_by_exit_code({"9" * 5_000: "system-error"})


def test_very_long_message_is_parsed_from_its_start() -> None:
    message = "0/3 nodes are available: 3 Insufficient cpu." + " x" * 500_000
    observed = read_observed({"job": job(started=None), "pods": [unplaced("master-0", message)]})
    assert [len(pod.scheduled.message) for pod in observed.pods if pod.scheduled] == [4_000]
    assert "3 lack cpu" in judge(observed, JudgingContext(), BEGAN).message


def test_error_file_summary_keeps_its_failure_and_its_cause() -> None:
    message = "✗ train failed on rank 3 (worker-2) after 2.0 s (oom-gpu)\n  RuntimeError: no\n" + "x" * 50_000
    file = ErrorFile(path="error.pb", message=message, worker="j-worker-2")
    summary = error_parser.summarize_file(file)
    assert len(summary.message) == 1_000
    assert error_parser.parse_error_file(summary) == error_parser.parse_error_file(file)
    assert summary.cause is Cause.OOM_GPU
